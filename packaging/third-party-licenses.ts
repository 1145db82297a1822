import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'rolldown';
import { type BundledPackage, packagesIn } from './bundled-packages.ts';

const FILE = 'THIRD-PARTY-LICENSES.txt';
const PERMITTED = new Set(['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT', 'MIT-0']);
const RULE = `\n\n${'-'.repeat(80)}\n\n`;
/** Every licence says so; what does not is no more than a mention of one. */
const DISCLAIMER = /\bAS\s+IS\b/;
/** Where a bundler's own licence ends. What it adds to a bundle has nothing of the packages that it is made of. */
const BUNDLED = /^# Licenses of bundled dependencies$/m;

/**
 * Writes the licences of the packages whose code is in the bundle into a file beside it: code may be passed on only
 * together with its copyright notices and the terms it is under.
 *
 * Fails the build when a licence is not on the list above, or its text is nowhere in the package.
 *
 * @param home the folder of this program, with its own licence (Apache-2.0) in LICENSE
 */
export function thirdPartyLicenses(home: string): Plugin {
  return {
    name: 'third-party-licenses',
    generateBundle(_options, bundle) {
      const packages = packagesIn(bundle, home);
      for (const { name, version, license } of packages) {
        if (isPermitted(license)) continue;
        throw new Error(
          `${name} ${version} is under ${license || 'no stated licence'}, which is not on the list in ` +
            'packaging/third-party-licenses.ts: do without the package, or permit its licence there',
        );
      }
      this.emitFile({ type: 'asset', fileName: FILE, source: licenceText(packages, home) });
    },
  };
}

/** Whether one may choose permitted licences, as of a SPDX expression; nested ones never are. */
export function isPermitted(expression: string): boolean {
  const choices = expression.replace(/^\(([^()]*)\)$/, '$1').split(' OR ');
  return choices.some((choice) => choice.split(' AND ').every((name) => PERMITTED.has(name)));
}

/** One section for each text, headed by the packages that it is for. */
function licenceText(packages: BundledPackage[], home: string): string {
  const sections = new Map<string, string[]>();
  for (const entry of packages) {
    const text = termsOf(entry, home);
    sections.set(text, [...(sections.get(text) ?? []), `${entry.name} ${entry.version} (${entry.license})`]);
  }
  const intro = 'This program contains code of the packages below, under the licences that follow their names.';
  return `${[intro, ...[...sections].map(([text, names]) => `${names.join('\n')}\n\n${text}`)].join(RULE)}\n`;
}

/** The terms as the package has them: in files of their own, else in its README, else in its sources. */
function termsOf(entry: BundledPackage, home: string): string {
  const text = [fromFiles, fromReadme, fromSources]
    .map((find) => find(entry, home))
    .find((found) => DISCLAIMER.test(found));
  if (text) return text;
  throw new Error(`${entry.name} ${entry.version} comes without the text of its licence (${entry.license})`);
}

function fromFiles({ folder }: BundledPackage): string {
  const names = readdirSync(folder).filter((name) => /^(licen[cs]e|copying|copyright|notice)/i.test(name));
  return names
    .sort()
    .map((name) => readText(join(folder, name)).split(BUNDLED)[0]?.trim())
    .join('\n\n');
}

function fromReadme({ folder }: BundledPackage): string {
  const file = join(folder, 'README.md');
  const heading = /^(?:#+ licen[cs]e|licen[cs]e\n-+)\n/im;
  return existsSync(file) ? (readText(file).split(heading)[1]?.split(/^#/m)[0]?.trim() ?? '') : '';
}

/** What its sources begin with; as that only sums up Apache-2.0, then the text, from the program's own licence. */
function fromSources({ license, modules }: BundledPackage, home: string): string {
  const notices = [...new Set(modules.map(topComment))].filter((text) => text.includes('Copyright'));
  const shortest = notices.filter((text) => !notices.some((other) => other !== text && text.startsWith(other)));
  return [...shortest, ...(license.includes('Apache-2.0') ? [readText(join(home, 'LICENSE'))] : [])].join('\n\n');
}

const topComment = (file: string) => (/^(?:\/\/.*\n)*/.exec(readText(file))?.[0] ?? '').replace(/^\/\/ ?/gm, '').trim();
const readText = (file: string) => readFileSync(file, 'utf8').replaceAll('\r\n', '\n').trim();
