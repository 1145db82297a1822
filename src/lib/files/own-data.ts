import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What only a folder with data of this program has; every start leaves the first. */
const MARKS = ['lock', 'gateway/gateway.db', 'enrolment.json', 'joined.env'];
const TUNNELS = 'tunnels.json';

/**
 * Whose data a folder has. Projects have folders such as `data`, too, and files of the same names in them.
 *
 * @returns `none` for one that is missing, empty or not readable; names that a file manager hides do not count
 */
export function dataIn(folder: string): 'own' | 'foreign' | 'none' {
  if (MARKS.some((name) => existsSync(join(folder, name)))) return 'own';
  const names = visibleNames(folder);
  if (names.length === 0) return 'none';
  return names.includes(TUNNELS) && isTunnelList(join(folder, TUNNELS)) ? 'own' : 'foreign';
}

/** The names of a folder for a message: the first ones. */
export function someNames(folder: string): string {
  const names = visibleNames(folder);
  return `${names.slice(0, 3).join(', ')}${names.length > 3 ? ', …' : ''}`;
}

function visibleNames(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => !name.startsWith('.') && name !== 'lost+found');
  } catch {
    return []; // opening the folder reports it
  }
}

function isTunnelList(file: string): boolean {
  try {
    return /^\s*\{\s*"version"\s*:\s*\d+\s*,/.test(readFileSync(file, 'utf8').slice(0, 200));
  } catch {
    return false;
  }
}
