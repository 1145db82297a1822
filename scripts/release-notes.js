// node scripts/release-notes.js v1.2.3: prints the changelog of the release; fails when the version is not consistent.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/**
 * The text below the heading of a version in a changelog (Keep a Changelog).
 *
 * @param {string} tag such as v1.2.3
 * @param {string} version of package.json
 * @param {string} changelog
 * @returns {string}
 * @throws Error when the three do not agree
 */
export function releaseNotes(tag, version, changelog) {
  if (tag !== `v${version}`) throw new Error(`tag ${tag} does not match version ${version} in package.json`);
  const section = changelog.split(/^## /m).find((text) => text.startsWith(`[${version}]`));
  const notes = section?.slice(section.indexOf('\n')).trim();
  if (!notes)
    throw new Error(`CHANGELOG.md has no entry for ${version}: add "## [${version}] - <date>" with the changes`);
  return `${notes}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  process.stdout.write(releaseNotes(process.argv[2] ?? '', version, readFileSync('CHANGELOG.md', 'utf8')));
}
