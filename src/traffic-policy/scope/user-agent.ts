import Bowser from 'bowser';
import list from 'crawler-user-agents';

export interface UserAgent {
  name: string;
  version: string;
  os: string;
  os_version: string;
  device: string;
  url: string;
  is_mobile: boolean;
  is_tablet: boolean;
  is_desktop: boolean;
  is_bot: boolean;
}

/** Text beyond this is ignored: it would only cost time in the patterns. */
const MAX_LENGTH = 512;

/** ngrok's names, where they differ from the library's. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['Microsoft Edge', 'Edge'],
  ['Samsung Internet for Android', 'Samsung Browser'],
  ['HeadlessChrome', 'Headless Chrome'],
  ['Chrome OS', 'ChromeOS'],
]);

const BROWSERS: ReadonlySet<string> = new Set(Object.values(Bowser.BROWSER_MAP));
const DESKTOPS: ReadonlySet<string> = new Set(['Windows', 'macOS', 'Linux', 'ChromeOS']);

export function parseUserAgent(header: string): UserAgent {
  // The library rejects empty texts.
  const text = header.slice(0, MAX_LENGTH) || '-';
  const { browser, os, platform } = Bowser.parse(text);
  const crawler = crawlerIn(text);
  const known = BROWSERS.has(browser.name ?? '') ? browser : productOf(text);
  const { name = '', version = '' } = crawler ?? known;
  const osName = named(os.name);
  const is_mobile = platform.type === 'mobile';
  const is_tablet = platform.type === 'tablet';
  return {
    name: named(name),
    version,
    os: osName,
    os_version: os.version?.replace(/^NT /, '') ?? '',
    device: platform.model ?? /Android [\d.]+; ([^;)]{1,40}?)(?: Build|[;)])/.exec(text)?.[1] ?? '',
    url: /\+?(https?:\/\/[^\s;)]{1,200})/.exec(text)?.[1] ?? '',
    is_mobile,
    is_tablet,
    is_desktop: !is_mobile && !is_tablet && crawler === null && DESKTOPS.has(osName),
    is_bot: crawler !== null,
  };
}

function named(name = ''): string {
  return NAMES.get(name) ?? name;
}

/** The first product of a client that is no browser, such as curl. */
function productOf(text: string): { name: string; version: string } {
  for (const [, name = '', version = ''] of text.matchAll(/([A-Za-z][\w-]{0,40})\/(\d[\w.]{0,30})/g)) {
    if (!ENGINES.has(name)) return { name, version };
  }
  return { name: /^[^\s/(-]*/.exec(text)?.[0] ?? '', version: '' };
}

/** Products that every browser names. */
const ENGINES: ReadonlySet<string> = new Set(['Mozilla', 'AppleWebKit', 'Gecko', 'Safari', 'Version']);

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

/** The crawler, AI agent or similar client that a User-Agent header of bounded length names first; null for others. */
function crawlerIn(header: string): { name: string; version: string } | null {
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
  const [product = ''] = found.split('/', 1);
  const end = at + product.trimEnd().length;
  const [, rest = '', version = ''] = /^([\w-]{0,40})(?:\/v?([\w.-]{1,30}))?/.exec(header.slice(end)) ?? [];
  return { name: (header.slice(start, end) + rest).trim(), version };
}
