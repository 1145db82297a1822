/** A setting that joining writes; null removes it. */
export type JoinedSettings = Readonly<Record<string, string | null>>;

const HEADING = '# Written by device-agent join.';

/**
 * The text of a settings file with other values: lines that set one of the names are replaced where they are, missing ones
 * follow at the end. Everything else stays.
 *
 * @param keep names whose present value stays
 */
export function withSettings(text: string, settings: JoinedSettings, keep: readonly string[] = []): string {
  const left = new Map(Object.entries(settings));
  const lines = text.split('\n').flatMap((line) => {
    const name = /^\s*(?:export\s+)?([A-Z_]+)\s*=/.exec(line)?.[1];
    if (name === undefined || !(name in settings)) return [line];
    const value = left.get(name);
    const isFirst = left.delete(name);
    if (keep.includes(name)) return [line];
    return isFirst && value !== null ? [`${name}=${value}`] : [];
  });
  const added = [...left].filter(([, value]) => value !== null).map(([name, value]) => `${name}=${value}`);
  if (added.length === 0) return lines.join('\n');
  const before = lines.join('\n').replace(/\n*$/, '');
  const heading = before.includes(HEADING) ? [] : [HEADING];
  return [...(before === '' ? [] : [before]), ...heading, ...added, ''].join('\n');
}
