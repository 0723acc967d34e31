"""Flame graphs as SVG: which functions were on the CPU, and who had called them."""

import re
from html import escape

WIDTH, ROW, TOP, BOTTOM = 1400, 16, 40, 24
# Narrower frames, as a part of all samples, are left out with what is above them.
SHARE_MIN = 0.0015
# Pixels that a letter of the monospaced font takes.
LETTER = 6.2
# The first that matches a frame's name colours it.
COLOURS = (
    (r"\[k\]$", "#d98b5f"),
    (r"thalweg_(storage|reactor)", "#6fae7e"),
    (r"thalweg_", "#6d9fd0"),
    (r"tokio|mio::", "#b79ad0"),
    (r"crc32|malloc|free|mem(cpy|move|set|cmp)", "#d9c25f"),
)
FRAME = re.compile(r"^\s+[0-9a-f]+ (?P<name>.*?)(?:\+0x[0-9a-f]+)? \((?P<module>[^()]*)\)$")


def stacks(lines):
    """{stack, outermost first: samples} of what `perf script -F comm,ip,sym,symoff,dso` prints."""
    found, comm, frames = {}, None, []
    for line in [*lines, ""]:
        frame = FRAME.match(line)
        if frame:
            frames.append(short(frame["name"]) + (" [k]" if "kernel" in frame["module"] else ""))
        elif line.strip():
            comm = line.strip().split("  ")[0]
        elif comm is not None:
            stack = (comm, *reversed(frames))
            found[stack] = found.get(stack, 0) + 1
            comm, frames = None, []
    return found


def short(name):
    """A function's name without generic arguments, the hash of its crate and what stands for every closure."""
    before = None
    while before != name:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    name = re.sub(r"::h[0-9a-f]{16}$", "", name).replace("::{{closure}}", "")
    return re.sub("(::)+", "::", name).strip(": ") or before


class Node:
    """A function under one chain of callers."""

    def __init__(self):
        self.samples, self.children = 0, {}


def tree(found):
    """All stacks as one tree."""
    root = Node()
    for stack, samples in found.items():
        node = root
        node.samples += samples
        for name in stack:
            node = node.children.setdefault(name, Node())
            node.samples += samples
    return root


def frames(root):
    """(name, depth, begin, samples) of what is wide enough to be seen; callers below, the wide ones first."""
    least, shown = root.samples * SHARE_MIN, []

    def walk(node, depth, begin):
        for name, child in sorted(node.children.items(), key=lambda item: -item[1].samples):
            if child.samples >= least:
                shown.append((name, depth, begin, child.samples))
                walk(child, depth + 1, begin)
            begin += child.samples
    walk(root, 0, 0)
    return shown


def svg(title, found):
    """The picture of stacks with their numbers of samples."""
    root = tree(found)
    shown = frames(root)
    depth = 1 + max((at for _, at, _, _ in shown), default=0)
    height, scale = TOP + BOTTOM + depth * ROW, (WIDTH - 20) / max(root.samples, 1)
    body = [frame(name, top_of(height, at), 10 + begin * scale, samples * scale, samples / root.samples)
            for name, at, begin, samples in shown]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
            f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>\n'
            + "\n".join(body)
            + f'\n<text x="10" y="{height - 8}">{root.samples} samples; width is share of the CPU, callers are below; orange is '
            'the kernel</text>\n</svg>\n')


def top_of(height, depth):
    """Top of a frame at so many callers."""
    return height - BOTTOM - (depth + 1) * ROW


def frame(name, y, x, width, share):
    """One box, with as much of its name as it has room for and all of it as a tooltip."""
    colour = next((colour for pattern, colour in COLOURS if re.search(pattern, name)), "#c9c9c9")
    letters = int((width - 4) / LETTER)
    words = name if len(name) <= letters else name[-letters:] if letters > 3 else ""
    return (f'<g><title>{escape(name)}: {share:.1%}</title>'
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" fill="{colour}"/>'
            + (f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(words)}</text>' if words else "") + "</g>")
