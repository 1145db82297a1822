import { isIPv4 } from 'node:net';

/** Whether a host, as in AGENT_HOST or in a Host header without its port, can only be this machine. */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}
