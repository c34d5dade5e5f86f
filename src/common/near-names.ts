/** Names that look like one that does not exist: somebody may have meant one of them. */

const MOST_NAMES = 3;
/** Longer names are compared by their beginnings. */
const MOST_CHARACTERS = 64;

/** Insertions, deletions and replacements from one text to the other; above `most`, any number above it. */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let before = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = before[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(replaced, before[j]! + 1, row[j - 1]! + 1));
    }
    if (Math.min(...row) > most) return most + 1;
    before = row;
  }
  return before[b.length]!;
}

/** At most three of `names`, the nearest first: few letters differ, apart from case, or one has the other. */
function nearNames(name: string, names: Iterable<string>): string[] {
  const asked = name.toLowerCase().slice(0, MOST_CHARACTERS);
  // Two letters in a wrong order are two replacements.
  const most = asked.length < 4 ? 1 : Math.max(2, Math.floor(asked.length / 3));
  const found: { name: string; far: number }[] = [];
  for (const each of names) {
    const text = each.toLowerCase().slice(0, MOST_CHARACTERS);
    let far = distance(asked, text, most);
    if (far > most && asked.length > 2 && text.includes(asked)) far = most;
    if (far <= most) found.push({ name: each, far });
  }
  found.sort((a, b) => a.far - b.far || (a.name < b.name ? -1 : 1));
  return found.slice(0, MOST_NAMES).map((each) => each.name);
}

/** The end of a message about a name that does not exist: `; near it: "a", "b"`, or nothing. */
export function nearText(name: string, names: Iterable<string>): string {
  const near = nearNames(name, names);
  return near.length === 0 ? '' : `; near it: ${near.map((each) => JSON.stringify(each)).join(', ')}`;
}
