import { isSupportedNode, OLDEST_NODE } from '../node-version.ts';
import { type Check, check, failed, ok } from './finding.ts';

/** @param version of the running Node, for example `v20.19.0` */
export function nodeVersionCheck(version = process.version): Check {
  return check('node', 'Node', async () => {
    if (isSupportedNode(version)) return ok(`${version} (${process.platform} ${process.arch})`);
    return failed(`${version} is too old`, `install Node ${OLDEST_NODE} or newer`);
  });
}
