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

/** Browsers by product, specific ones before those whose name they also carry. */
const BROWSERS: readonly [product: string, name: string][] = [
  ['Edg', 'Edge'],
  ['EdgA', 'Edge'],
  ['EdgiOS', 'Edge'],
  ['OPR', 'Opera'],
  ['SamsungBrowser', 'Samsung Browser'],
  ['Firefox', 'Firefox'],
  ['FxiOS', 'Firefox'],
  ['CriOS', 'Chrome'],
  ['HeadlessChrome', 'Headless Chrome'],
  ['Chrome', 'Chrome'],
];

const SYSTEMS: readonly [pattern: RegExp, name: string][] = [
  [/Windows Phone(?: OS)? ([\d.]+)/, 'Windows Phone'],
  [/Windows NT ([\d.]+)/, 'Windows'],
  [/Android ([\d.]+)/, 'Android'],
  [/(?:iPhone|iPad|iPod)[^)]{0,40} OS ([\d_]+)/, 'iOS'],
  [/Mac OS X ([\d_.]+)/, 'macOS'],
  [/CrOS \w+ ([\d.]+)/, 'ChromeOS'],
  [/Linux()/, 'Linux'],
];

/** Parses a User-Agent header; missing fields are empty or false. */
export function parseUserAgent(header: string): UserAgent {
  const text = header.slice(0, MAX_LENGTH);
  const is_bot = /bot\b|crawler|spider|slurp|facebookexternalhit|headless/i.test(text);
  const is_tablet = /iPad|Tablet/.test(text) || (/Android/.test(text) && !/Mobile/.test(text));
  const is_mobile = !is_tablet && /Mobi|iPhone|iPod|Windows Phone/.test(text);
  const [os, os_version] = systemOf(text);
  return {
    ...productOf(text),
    os,
    os_version,
    device:
      /\b(iPhone|iPad|iPod)\b/.exec(text)?.[1] ?? /Android [\d.]+; ([^;)]{1,40}?)(?: Build|[;)])/.exec(text)?.[1] ?? '',
    url: /\+?(https?:\/\/[^\s;)]{1,200})/.exec(text)?.[1] ?? '',
    is_mobile,
    is_tablet,
    is_desktop: !is_mobile && !is_tablet && !is_bot && ['Windows', 'macOS', 'Linux', 'ChromeOS'].includes(os),
    is_bot,
  };
}

function productOf(text: string): { name: string; version: string } {
  const products = new Map(
    Array.from(text.matchAll(/([A-Za-z][\w-]{0,40})\/(\d[\w.]{0,30})/g), (m) => [m[1], m[2] ?? '']),
  );
  for (const [product, name] of BROWSERS) {
    const version = products.get(product);
    if (version !== undefined) return { name, version };
  }
  if (products.has('Safari')) return { name: 'Safari', version: products.get('Version') ?? '' };
  for (const [name = '', version] of products) if (name !== 'Mozilla') return { name, version };
  return { name: products.size === 0 ? (text.split(/[\s/(]/, 1)[0] ?? '') : '', version: '' };
}

function systemOf(text: string): [name: string, version: string] {
  for (const [pattern, name] of SYSTEMS) {
    const match = pattern.exec(text);
    if (match) return [name, (match[1] ?? '').replaceAll('_', '.')];
  }
  return ['', ''];
}
