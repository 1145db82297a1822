import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from 'vitest';

const PAGES = [
  ...readdirSync('.').filter((name) => name.endsWith('.md')),
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name)),
  'test/README.md',
].filter((file) => existsSync(file));

const textOf = (file: string) => readFileSync(file, 'utf8').replace(/^```[\s\S]*?^```$/gm, '');

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(file: string): Set<string> {
  const titles = [...textOf(file).matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => title);
  return new Set(
    titles.map((title) =>
      title
        .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

it.each(PAGES)('%s has no link to a missing file or heading', (page) => {
  const links = [...textOf(page).matchAll(/(?:\]\(|src(?:set)?=")([^)\s"]+)/g)].map(([, link = '']) => link);
  const dead = links.filter((link) => {
    if (/^(https?|mailto):/.test(link)) return false;
    const [path = '', anchor] = link.split('#');
    const file = path === '' ? page : normalize(join(dirname(page), path));
    if (!existsSync(file)) return true;
    return anchor !== undefined && !anchorsOf(file).has(anchor);
  });
  expect(dead).toEqual([]);
});

it('README leads to every page in docs/', () => {
  const readme = readFileSync('README.md', 'utf8');
  const pages = readdirSync('docs').filter((name) => name.endsWith('.md'));
  expect(pages.filter((name) => !readme.includes(`(docs/${name})`))).toEqual([]);
});
