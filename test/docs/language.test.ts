import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

/** Words and phrases that readers stumble over, each with what to write instead. */
const AVOID: readonly [pattern: RegExp, instead: string][] = [
  [/\bvisitors?\b/i, 'client'],
  [/\bstrangers?\b/i, 'client, attacker'],
  [/\bnewcomers?\b/i, 'new connection'],
  [/\bthe public(?! (?!gets|can|may|is|has|at)\w)/i, 'clients'],
  [/\bwhoever\b/i, 'anyone who; name the subject first'],
  [/\bsuch as are\b/i, 'name the subject first'],
  [/\b(?:is|are) to be\b/i, 'must be'],
  [/\bthere is none\b/i, 'does not exist, is missing'],
  [/\bnone is\b/i, 'no … is'],
  [/\bby itself\b/i, 'standalone, automatic'],
  [/\banew\b/i, 'again'],
  [/\ba certain\b/i, 'a specific'],
  [/\bas it stands\b/i, 'current'],
  [/\bof its own accord\b/i, 'automatically'],
  [/\bknows of\b/i, 'knows'],
  [/\btells of\b/i, 'reports'],
  [/\bhas one given\b/i, 'gets'],
  [/\bcannot be had\b/i, 'unavailable'],
  [/\bcan be had\b/i, 'available'],
  [/\bleads? nowhere\b/i, 'unreachable, does not exist'],
  [/\bleads where it may not\b/i, 'not allowed'],
  [/\b(?:is|are|be) let in\b/i, 'accepted'],
  [/\bstays? away\b/i, 'unavailable'],
  [/\btakes? over\b/i, 'reload, replace'],
  [/\bnot possible here\b/i, 'not supported'],
  [/\bsign of life\b/i, 'watchdog, heartbeat'],
  [/\bfront ?door\b/i, 'TlsMux'],
  [/\bhurry\b/i, 'immediately'],
  [/\bvouch(?:es|ed)?\b/i, 'sign, trust'],
];

const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'CHANGELOG.md',
  'test/README.md',
  '.env.example',
  ...readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name)),
];

const SOURCES = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.tsx?$/.test(name))
  .map((name) => join('src', name));

/** Pages as they are read: without code blocks, code and addresses. */
function prose(page: string): string {
  return page
    .replace(/^```[\s\S]*?^```$/gm, '')
    .replace(/`[^`\n]*`/g, '')
    .replace(/\]\([^)]*\)/g, ']');
}

/** What a program says, without comments: its string literals; all of a component, whose texts stand between tags, too. */
function textsOf(file: string, source: string): string[] {
  const code = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
  if (file.endsWith('.tsx')) return [code.replace(/\s+/g, ' ')];
  const found = code.matchAll(/'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g);
  return [...found].map(([, single, double, template]) => single ?? double ?? template ?? '');
}

function problems(file: string, texts: readonly string[]): string[] {
  return texts.flatMap((text) =>
    AVOID.flatMap(([pattern, instead]) => {
      const [found] = pattern.exec(text) ?? [];
      return found === undefined ? [] : [`${file}: "${found}" (write ${instead}) in: ${around(text, found)}`];
    }),
  );
}

function around(text: string, found: string): string {
  const at = text.indexOf(found);
  return text.slice(Math.max(0, at - 40), at + found.length + 40).replaceAll('\n', ' ');
}

it('pages avoid the words that CONTRIBUTING.md advises against', () => {
  const texts = PAGES.map((file) => [file, prose(readFileSync(file, 'utf8'))] as const);
  expect(texts.flatMap(([file, text]) => problems(file, [text]))).toEqual([]);
});

it('help, errors, log messages and the texts of pages avoid the same words', () => {
  const texts = SOURCES.map((file) => [file, textsOf(file, readFileSync(file, 'utf8'))] as const);
  expect(texts.flatMap(([file, strings]) => problems(file, strings))).toEqual([]);
});
