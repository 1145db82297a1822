import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** What Docker and Podman put into their containers. */
const MARKS = ['.dockerenv', 'run/.containerenv'];

/**
 * Whether this process runs in a container with a network of its own. Other machines reach it through published ports only,
 * and the container does not know where these are.
 */
export function hasContainerNetwork(root = '/'): boolean {
  return MARKS.some((mark) => existsSync(join(root, mark))) && !hasNetworkCard(join(root, 'sys/class/net'));
}

/** Virtual interfaces have no device. With the network of the host, a container sees its cards. */
function hasNetworkCard(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => existsSync(join(folder, name, 'device')));
  } catch {
    return true; // unknown
  }
}
