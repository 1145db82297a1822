import { type Check, check, failed, ok } from './finding.ts';

/** The oldest supported version of Node, as in `engines` of package.json. */
const OLDEST = [20, 19] as const;

/** @param version of the running Node, for example `v20.19.0` */
export function nodeVersionCheck(version = process.version): Check {
  return check('node', 'Node', async () => {
    const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
    const isNewEnough = major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
    if (isNewEnough) return ok(`${version} (${process.platform} ${process.arch})`);
    return failed(`${version} is too old`, `install Node ${OLDEST.join('.')} or newer`);
  });
}
