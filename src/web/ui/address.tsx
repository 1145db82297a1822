import type { JSX } from 'preact';

/**
 * A link for what browsers open, else text; a name in Unicode stands below its ASCII form. Others chose the URL, so its scheme is
 * checked.
 */
export function AddressView({ url }: { url: string }): JSX.Element {
  if (!/^https?:\/\//.test(url)) {
    return (
      <p class="url">
        {url}
        <UnicodeForm of={url} />
      </p>
    );
  }
  return (
    <p>
      <a class="url" href={url} target="_blank" rel="noopener noreferrer">
        {url}
        <span class="visually-hidden"> (opens in a new tab)</span>
      </a>
      <UnicodeForm of={url} />
    </p>
  );
}

/** What the `xn--` labels of a hostname or URL mean. Beside the ASCII form, never in its place: Unicode has lookalikes. */
export function UnicodeForm({ of }: { of: string }): JSX.Element | null {
  const form = unicodeForm(of);
  return form === null ? null : <bdi class="below">{form}</bdi>;
}

/** The scripts whose letters may stand together in a label: other mixtures are for deceiving people. */
const SCRIPTS = [
  'Latin',
  'Greek',
  'Cyrillic',
  'Armenian',
  'Georgian',
  'Hebrew',
  'Arabic',
  'Devanagari',
  'Bengali',
  'Tamil',
  'Thai',
  'Ethiopic',
  'Han}\\p{Script=Hangul',
  'Han}\\p{Script=Hiragana}\\p{Script=Katakana',
].map((name) => new RegExp(`^[-\\d\\p{M}ー\\p{Script=${name}}]+$`, 'u'));

/**
 * The hostname of a URL, or a hostname, with its `xn--` labels in Unicode.
 *
 * @returns null when it has none, or one that browsers would not resolve, or whose letters are of several scripts
 */
export function unicodeForm(url: string): string | null {
  const [host = ''] = url.replace(/^\w+:\/\//, '').split(/[/:?#]/);
  const ascii = host.replace(/^\*\./, '').toLowerCase();
  const labels = ascii.split('.').map((label) => (label.startsWith('xn--') ? decode(label.slice(4)) : label));
  const form = labels.join('.');
  if (form === ascii || !labels.every((label) => SCRIPTS.some((script) => script.test(label)))) return null;
  return URL.canParse(`https://${form}`) && new URL(`https://${form}`).hostname === ascii
    ? host.startsWith('*.')
      ? `*.${form}`
      : form
    : null;
}

/** Decodes Punycode (RFC 3492, section 6.2). Nonsense becomes other nonsense, which does not encode to the same label. */
function decode(text: string): string {
  const hyphen = text.lastIndexOf('-');
  const output = [...text.slice(0, Math.max(hyphen, 0))];
  let point = 128;
  let place = 0;
  let bias = 72;
  for (let at = hyphen + 1; at < text.length; ) {
    const before = place;
    let digit = 0;
    let weight = 1;
    let threshold = 0;
    for (let step = 36; digit >= threshold; step += 36) {
      const value = Number.parseInt(text[at++] ?? '-', 36);
      // The letters come first: `a` is 0, `0` is 26.
      digit = value < 10 ? value + 26 : value - 10;
      threshold = Math.min(Math.max(step - bias, 1), 26);
      place += digit * weight;
      weight *= 36 - threshold;
    }
    const count = output.length + 1;
    bias = adapted(place - before, count, before === 0);
    point += Math.floor(place / count);
    place %= count;
    if (!(point <= 0x10ffff)) return '';
    output.splice(place++, 0, String.fromCodePoint(point));
  }
  return output.join('');
}

/** Section 6.1. */
function adapted(change: number, count: number, isFirst: boolean): number {
  let delta = Math.floor(change / (isFirst ? 700 : 2));
  delta += Math.floor(delta / count);
  let bias = 0;
  for (; delta > 455; bias += 36) delta = Math.floor(delta / 35);
  return bias + Math.floor((36 * delta) / (delta + 38));
}
