/** The oldest supported version of Node.js, as in `engines` of package.json. */
export const OLDEST_NODE = '20.19';

/** @param version for example `v20.19.0` */
export function isSupportedNode(version: string): boolean {
  const [oldestMajor = 0, oldestMinor = 0] = OLDEST_NODE.split('.').map(Number);
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}
