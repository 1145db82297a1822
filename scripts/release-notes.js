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

/**
 * npm accepts a provenance only for the repository that package.json names.
 *
 * @param {{ url?: string } | undefined} repository of package.json
 * @param {string | undefined} built `owner/name` of the repository that is released; undefined outside hosted CI
 * @throws Error when the two differ
 */
export function checkRepository(repository, built) {
  if (built === undefined || repository?.url?.endsWith(`github.com/${built}.git`)) return;
  const wanted = JSON.stringify({ type: 'git', url: `git+https://github.com/${built}.git` });
  throw new Error(
    `package.json does not name this repository, so npm would refuse its provenance: set "repository" to ${wanted}`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { version, repository } = JSON.parse(readFileSync('package.json', 'utf8'));
  checkRepository(repository, process.env.GITHUB_REPOSITORY);
  process.stdout.write(releaseNotes(process.argv[2] ?? '', version, readFileSync('CHANGELOG.md', 'utf8')));
}
