import { execFileSync } from 'node:child_process';

/** Characters of a commit's hash that are shown. */
const SHOWN = 12;

/**
 * The commit that a build is made from, for `--version`: `487d2272b050`, or `487d2272b050-modified` when tracked files differ from
 * it. `SOURCE_COMMIT` names it where the build has no repository, such as in a container.
 *
 * @param home the folder with the sources
 * @returns null when nothing names it
 */
export function commitOf(home: string): string | null {
  const { SOURCE_COMMIT = '' } = process.env;
  if (SOURCE_COMMIT !== '') return SOURCE_COMMIT.slice(0, SHOWN);
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: home, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    // Sources without a repository may lie inside another one.
    const [prefix, commit = ''] = git('rev-parse', '--show-prefix', 'HEAD').split('\n');
    if (prefix !== '') return null;
    const modified = git('status', '--porcelain', '--untracked-files=no') !== '';
    return `${commit.slice(0, SHOWN)}${modified ? '-modified' : ''}`;
  } catch {
    return null;
  }
}
