import Bowser from 'bowser';
import { crawlerIn } from './crawlers.ts';

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

/** Parses a User-Agent header; missing fields are empty or false. */
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
