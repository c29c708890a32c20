"""One spelling for kernel names, which profilers write differently.

Most profilers demangle as the C++ runtime does (`f<4, true, {lambda(float)#1}>`). NVIDIA's tools write
`f<(int)4, (bool)1, [lambda(float) (instance 1)]>` instead. They also name some template arguments by their parameters
(`T1`), which no rule can undo: two spellings of such a kernel agree only in their `bare` name.
"""

import re

_ANONYMOUS = re.compile(r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\}|\b_GLOBAL__N_\w*)::")
_LAMBDA = re.compile(r"\[(lambda\([^\[\]]*?\)) \(instance (\d+)\)\]")
_CAST = re.compile(r"\([A-Za-z_][\w: ]*\)(?=-?\d)")
_SUFFIX = re.compile(r"\b(\d+)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)
_TRUTH = {"true": "1", "false": "0"}


def canonical(name: str) -> str:
    """Return a name without return type, arguments and spaces, and with plain numbers in its template arguments."""
    text = _ANONYMOUS.sub("", name.strip()).replace("operator ()", "operator()")
    text = _LAMBDA.sub(r"{\1#\2}", text)
    text = _SUFFIX.sub(r"\1", _CAST.sub("", text))
    text = re.sub(r"\b(?:true|false)\b", lambda found: _TRUTH[found.group()], text)
    return re.sub(r"\s+", "", _without_type(_without_arguments(text)))


def bare(name: str) -> str:
    """Return the function's qualified name without its template arguments."""
    return canonical(name).partition("<")[0]


def _without_arguments(text: str) -> str:
    """Return a name without the list of arguments at its end."""
    text = re.sub(r"(?:\s*\[clone [^\]]*\])+$|\s+const$", "", text)
    if not text.endswith(")"):
        return text
    depth = 0
    for place in reversed(range(len(text))):
        depth += (text[place] == ")") - (text[place] == "(")
        if not depth:
            return text[:place] or text
    return text


def _without_type(text: str) -> str:
    """Return a name without the return type before it: `void `, `std::enable_if<(…), void>::type `."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<({[") - (letter in ">)}]")
        if letter == " " and not depth and text[place - 1] != ",":
            begin = place + 1
    return text[begin:]
