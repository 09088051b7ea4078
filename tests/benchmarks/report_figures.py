"""Made-up figures of the toy suite, by arm and seed, that reports are tested on."""

FIGURES = {
    "fixed+infonce": ((70.0, 0.5), (72.0, 0.4), (77.0, 0.3), (71.0, 0.5), (75.0, 0.3)),
    "macl+infonce": ((71.0, 0.4), (73.5, 0.3), (78.5, 0.2), (72.0, 0.4), (76.5, 0.2)),
    "fixed+dcl": ((69.0, 0.5), (70.5, 0.5), (76.0, 0.5), (69.5, 0.5), (74.0, 0.5)),
    "temperature-free+infonce": ((60.0, 0.9), (75.0, 0.1)),
}
SEEDS = (0, 1, 2, 3, 4)
