import { isIPv4 } from 'node:net';

/** Whether a host (of AGENT_HOST, or of a Host header without its port) is always this machine. */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}
