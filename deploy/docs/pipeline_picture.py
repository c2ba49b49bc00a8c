#!/usr/bin/env python3
"""Draws parts of a trace (--trace FILE of the coordinator) as SVG: a panel a part, a row a stage, a box a micro-batch, which keeps its
colour from stage to stage. Steps of guessed rows alone have one colour, and are hatched where none of the guesses held. Usage: pipeline_picture.py TRACE FROM:TO,TITLE... >picture.svg, in milliseconds from the first step."""
import html
import json
import sys

WIDTH, LEFT, RIGHT, ROW, GAP, HEAD, FOOT = 860, 62, 10, 24, 4, 30, 26
COLOURS = ["#0b559f", "#c24b00", "#00785a", "#8a3a9e", "#a07600", "#3d97cf", "#c2185b", "#3a3a3a"]
GUESS = {"guess": "#5d7a1a", "guess (void)": "url(#void)"}
HATCH = ('<defs><pattern id="void" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
         '<rect width="6" height="6" fill="#5d7a1a"/><rect width="2" height="6" fill="#a9c05f"/></pattern></defs>')


def steps(path):
    """Of every stage: (begin and length in milliseconds, name, its rows, micro-batch)."""
    with open(path, encoding="utf-8") as lines:
        events = [json.loads(line.rstrip(",\n")) for line in lines if line.startswith("{")]
    boxes = [e for e in events if e["ph"] == "X" and e["pid"] > 1 and "waited_us" in e.get("args", {})]
    first = min(e["ts"] for e in boxes)
    stages = {}
    for e in boxes:
        rows = "+".join(str(e["args"][kind]) for kind in ("prefill_rows", "decode_rows", "guessed_rows") if e["args"].get(kind, 0) > 0)
        box = ((e["ts"] - first) / 1000, e["dur"] / 1000, e["name"], rows, e["args"]["micro_batch"])
        stages.setdefault(e["pid"] - 2, []).append(box)
    return stages


def panel(stages, begin, end, title, top):
    """The panel's elements and its bottom."""
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    parts = [f'<text x="{LEFT}" y="{top + 19}" font-size="14" font-weight="bold">{html.escape(title)}</text>']
    y = top + HEAD
    for stage in sorted(stages):
        parts.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">stage {stage}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{ROW - GAP}" fill="#eee"/>')
        for start, length, name, rows, number in stages[stage]:
            left, right = max(start, begin), min(start + length, end)
            if left >= right:
                continue
            x, width = LEFT + (left - begin) * scale, (right - left) * scale
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.6, 0.6):.1f}" height="{ROW - GAP}" '
                         f'fill="{GUESS.get(name, COLOURS[number % len(COLOURS)])}"><title>{name} {rows}, {length:.0f} ms</title></rect>')
            if width > 22:
                parts.append(f'<text x="{x + width / 2:.1f}" y="{y + 14}" text-anchor="middle" fill="#fff">{rows}</text>')
        y += ROW
    parts.append(f'<text x="{LEFT}" y="{y + 13}">0</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{y + 13}" text-anchor="end">{end - begin:.0f} ms</text>')
    return parts, y + FOOT


def main():
    stages = steps(sys.argv[1])
    body, top = [], 0
    for part in sys.argv[2:]:
        span, title = part.split(",", 1)
        begin, end = (float(ms) for ms in span.split(":"))
        elements, top = panel(stages, begin, end, title, top)
        body += elements
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
          'font-family="sans-serif" font-size="11" fill="#222">')
    print(HATCH + f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>')
    print("\n".join(body) + "\n</svg>")


main()
