"""The figures as tables: medians over the rounds, ratios, and ratios paired by round."""

import os
import sys
from statistics import median

COLUMNS = (
    ("cpu_us", "CPU µs/req", "{:.2f}"),
    ("user_us", "user", "{:.2f}"),
    ("system_us", "system", "{:.2f}"),
    ("rps", "req/s", "{:,.0f}"),
    ("p50_ms", "p50 ms", "{:.2f}"),
    ("p99_ms", "p99 ms", "{:.2f}"),
    ("memory_mib", "MiB", "{:.1f}"),
)
REDIS_COLUMNS = (
    ("redis_us", "CPU µs/req", "{:.2f}"),
    ("both_us", "both µs/req", "{:.2f}"),
    ("redis_us_call", "CPU µs/call", "{:.2f}"),
    ("redis_calls", "script calls/req", "{:.3f}"),
    ("redis_commands", "commands/req", "{:.2f}"),
)
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def bold(text):
    return f"\x1b[1m{text}\x1b[0m" if COLOUR else text


def medians(rounds):
    """One row a contender. Memory is what it holds at the end, not a median."""
    row = {key: median(each[key] for each in rounds) for key, _, _ in COLUMNS}
    row["memory_mib"] = rounds[-1]["memory_mib"]
    return row


def paired(rounds, base):
    """CPU a request against `base` in the same round: (median, least, greatest)."""
    ratios = [one["cpu_us"] / other["cpu_us"] for one, other in zip(rounds, base)]
    return median(ratios), min(ratios), max(ratios)


def show(path, results, options):
    """Prints everything about one path."""
    rows = {name: medians(rounds) for name, rounds in results.items()}
    bases = [name for name in path.peers if name in rows and name != path.subject]
    measure = next(iter(results.values()))[-1]["memory_measure"]
    print()
    print(bold(f"{path.name}: median of {options.rounds} rounds of {options.seconds} s, "
               f"{options.connections} connections, {options.workers} workers; memory is {measure} at the end"))
    table([""] + [title for _, title, _ in COLUMNS],
          [[name] + [form.format(row[key]) for key, _, form in COLUMNS] for name, row in rows.items()])
    if path.redis:
        show_redis(results)
    for base in bases:
        others = [name for name in rows if name not in (base, "origin")]
        if others:
            print()
            table([f"÷ {base}"] + [title.removesuffix(" µs/req").removesuffix(" ms") for _, title, _ in COLUMNS],
                  [[name] + [ratio(rows[name][key], rows[base][key]) for key, _, _ in COLUMNS] for name in others])
    if bases:
        print()
        compared = [name for name in rows if name != "origin"]
        table(["CPU, by round"] + [f"÷ {base}" for base in bases],
              [[name] + ["{:.3f} ({:.3f}–{:.3f})".format(*paired(results[name], results[base]))
                         if name != base else "1" for base in bases] for name in compared])
    if path.bounds and path.subject in results:
        show_bounds(path, results)
    foreign = median(each["foreign_share"] for rounds in results.values() for each in rounds)
    print(f"\nother work on this machine meanwhile: {foreign:.0%} of its cores"
          + ("; too much to trust small differences" if foreign > 0.1 else ""))


def show_redis(results):
    """What each one's Redis did. Commands are all it ran, those of scripts too."""
    print()
    table(["Redis behind"] + [title for _, title, _ in REDIS_COLUMNS],
          [[name] + [form.format(median(each[key] for each in rounds)) for key, _, form in REDIS_COLUMNS]
           for name, rounds in results.items() if "redis_us" in rounds[0]])


def show_bounds(path, results):
    print()
    for base, bound in path.bounds.items():
        if base in results:
            show_bound(f"CPU, {path.subject} ÷ {base}", paired(results[path.subject], results[base])[0], bound)
    if path.calls_bound is not None:
        calls = median(each["redis_calls"] for each in results[path.subject])
        show_bound(f"script calls a request, {path.subject}", calls, path.calls_bound)


def show_bound(what, figure, bound):
    print(f"{what}: {figure:.3f}, wanted at most {bound}: {'kept' if figure <= bound else 'NOT KEPT'}")


def show_syscalls(path, counts):
    print()
    print(bold(f"{path.name}: system calls a request, traced (batches more than an untraced run)"))
    table(["", "all", "most frequent"],
          [[name, f"{sum(calls.values()):.2f}",
            "  ".join(f"{call} {share:.2f}" for call, share in list(calls.items())[:6])]
           for name, calls in counts.items()], text_from=2)


def ratio(value, base):
    return f"{value / base:.3f}" if base else "–"


def table(head, rows, text_from=None):
    """Names to the left, figures to the right, prose (from that column on) to the left."""
    widths = [max(len(line[at]) for line in [head] + rows) for at in range(len(head))]
    for number, line in enumerate([head] + rows):
        cells = [cell.ljust(width) if at == 0 or (text_from is not None and at >= text_from) else cell.rjust(width)
                 for at, (cell, width) in enumerate(zip(line, widths))]
        text = "  ".join(cells).rstrip()
        print(bold(text) if number == 0 else text)
