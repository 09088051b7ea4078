"""Names that a user chose, as words of Markdown and of a shell: they stay text, whatever characters they have.

Python literals come from `repr`, YAML from PyYAML's dumper, HTML from `html.escape`. Characters that cannot be seen, such as
those that turn the direction of text around, are written by their numbers.
"""

from __future__ import annotations

import re
import shlex

from tempplug.cli import printable

# Ambiguous characters are escaped only where they would be markup: links, entities, emphasis around a word, headings.
_MARKUP = re.compile(r"[|*`<\\]|\](?=\()|&(?=#?\w+;)|~(?=~)|(?<![^\W_])_|_(?![^\W_])|^[#>]|#$|^[-+](?= )")


def escape_markdown(text: str) -> str:
    r"""Returns text as one line for a paragraph, a heading or a cell of a table in Markdown.

    >>> print(escape_markdown("<img> **a|b**\n# `c` [d](e)"))
    \<img> \*\*a\|b\*\* # \`c\` [d\](e)
    """
    return _MARKUP.sub(r"\\\g<0>", printable(" ".join(text.split())))


def code(value: object) -> str:
    r"""Returns a value as a code span for a paragraph or a cell of a table in Markdown.

    >>> print(code("a<b>"), code("a|`b"))
    `a<b>` <code>a\|\`b</code>
    """
    shown = printable(str(value))
    if shown.strip() == shown != "" and not set(shown) & set("`|"):
        return f"`{shown}`"
    return f"<code>{escape_markdown(shown)}</code>"


def fenced(language: str, lines: str) -> str:
    """Returns lines as a code block of Markdown, whose fence is longer than any run of backticks in them."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", lines)), 3)
    return f"{fence}{language}\n{lines}\n{fence}"


def shell_word(word: object) -> str:
    r"""Returns a word for a line of bash, quoted where needed; characters that cannot be seen are written by their numbers.

    >>> print(shell_word("plain.txt"), shell_word("it's"), shell_word("a\nb"))
    plain.txt 'it'"'"'s' $'a\x0ab'
    """
    text = str(word)
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_ansi_c, text))}'"


def _ansi_c(letter: str) -> str:
    number = ord(letter)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is no UTF-8
        return f"\\x{number - 0xDC00:02x}"
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return f"\\x{number:02x}" if number < 0x80 else f"\\U{number:08x}"


def shell_line(*words: object) -> str:
    """Returns a command of words, each as `shell_word` writes it."""
    return " ".join(map(shell_word, words))


def shell_flag(flag: str, value: object) -> str:
    """Returns a flag with its value as part of a line of bash; a value that begins with a hyphen is joined to the flag."""
    return f"{flag}{'=' if str(value).startswith('-') else ' '}{shell_word(value)}"
