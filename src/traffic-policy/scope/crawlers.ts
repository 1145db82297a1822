import list from 'crawler-user-agents';

/**
 * Agents with only these tags are not crawlers: devices call APIs with libraries, and a pattern for browsers under
 * automation also fits Safari.
 */
const OTHER_TAGS: ReadonlySet<string> = new Set(['http-library', 'browser-automation']);

/** Agents that the list does not have yet; not the phones of Cubot. */
const UNLISTED = /[\w-]{0,40}(?:(?<!cu)bot\b|crawler|spider|headless)/i;

/** The package's types lack the tags. */
const AGENTS: readonly { readonly pattern: string; readonly tags?: readonly string[] }[] = list;

const PATTERNS: readonly (string | RegExp)[] = [
  ...AGENTS.filter(({ tags = [] }) => tags.length === 0 || tags.some((tag) => !OTHER_TAGS.has(tag))).map(
    ({ pattern }) => plainText(pattern) ?? new RegExp(pattern),
  ),
  UNLISTED,
];

/** Almost all patterns are plain text, which is found many times faster. */
function plainText(pattern: string): string | null {
  const escapes = /\\([^\w])/g;
  return /[\\^$*?()[\]{}|.+]/.test(pattern.replace(escapes, '')) ? null : pattern.replace(escapes, '$1');
}

/**
 * Finds the crawler, AI agent or similar client that a User-Agent header names first.
 *
 * @param header of bounded length: every pattern is tried
 * @returns its name, spelt as in the header; null for browsers and libraries
 */
export function crawlerIn(header: string): { name: string; version: string } | null {
  let at = header.length;
  let found = '';
  for (const pattern of PATTERNS) {
    const index = typeof pattern === 'string' ? header.indexOf(pattern) : header.search(pattern);
    if (index === -1 || index > at) continue;
    const text = typeof pattern === 'string' ? pattern : (pattern.exec(header)?.[0] ?? '');
    if (index < at || text.length > found.length) [at, found] = [index, text];
  }
  if (found === '') return null;
  // A pattern can be a part of the name, or reach beyond it.
  const start = /[\w-]{0,40}$/.exec(header.slice(0, at))?.index ?? at;
  const end = at + (found.split('/', 1)[0] as string).trimEnd().length;
  const [, rest = '', version = ''] = /^([\w-]{0,40})(?:\/v?([\w.-]{1,30}))?/.exec(header.slice(end)) ?? [];
  return { name: (header.slice(start, end) + rest).trim(), version };
}
