import { execFileSync } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NameServer } from './name-server.ts';
import { firstOf, type Missing, NO_LINUX, NO_ROOT } from './requirements.ts';

/** The gateway's domain in a network; its `connect.` resolves to the first near address. */
export const NETWORK_DOMAIN = 'gateway.test';
const GATEWAY = `connect.${NETWORK_DOMAIN}`;

/** Why this machine cannot create network namespaces; null when it can. */
export const NO_NETWORKS: Missing = firstOf(NO_LINUX, NO_ROOT) ?? networksRefused();

function networksRefused(): Missing {
  const name = `probe-${randomBytes(3).toString('hex')}`;
  try {
    run('ip', 'netns', 'add', name);
  } catch (error) {
    return `network namespaces cannot be made: ${String(error).split('\n')[0]}; install iproute2`;
  }
  try {
    run('ip', '-n', name, 'link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far');
    const needs = 'mount --bind /dev/null /etc/resolv.conf && nft list ruleset && sysctl -w net.ipv4.ip_forward=1';
    run('ip', 'netns', 'exec', name, 'sh', '-c', needs);
    return null;
  } catch (error) {
    return `network namespaces cannot be made: ${String(error).split('\n')[1]}; install nftables`;
  } finally {
    run('ip', 'netns', 'del', name);
  }
}

/** The tools that simulate network faults on this machine, for a report. */
export function networkFaultTools(): string {
  return NO_NETWORKS === null
    ? 'packets are lost in network namespaces, by nftables, and delayed by a proxy'
    : `no faults below TCP: ${NO_NETWORKS}`;
}

/**
 * Two hosts with a router between them that can lose packets unnoticed. The near host is the machine's own namespace,
 * the far host a namespace for a program.
 *
 * The near host has the addresses `near`, the far host `far`. The far host only uses the name server at the first near
 * address.
 */
export class Network {
  private constructor(
    /** Unique on this machine; part of its addresses and names. */
    private readonly id: number,
    private readonly folder: string,
    /** Addresses of the near host. */
    readonly near: readonly [string, string],
    readonly names: NameServer,
  ) {}

  static async create(): Promise<Network> {
    const id = claimNumber();
    const folder = mkdtempSync(join(tmpdir(), 'network-'));
    // From the block for tests of network devices (RFC 2544).
    const subnet = `198.18.${id}`;
    const [router, far] = [`router-${id}`, `far-${id}`];
    run('ip', 'netns', 'add', far);
    run('ip', 'link', 'add', `near-${id}`, 'type', 'veth', 'peer', 'name', 'near', 'netns', router);
    run('ip', '-n', router, 'link', 'add', 'far', 'type', 'veth', 'peer', 'name', 'router', 'netns', far);
    run('ip', 'address', 'add', `${subnet}.1/29`, 'dev', `near-${id}`);
    run('ip', 'address', 'add', `${subnet}.2/29`, 'dev', `near-${id}`);
    run('ip', '-n', router, 'address', 'add', `${subnet}.6/29`, 'dev', 'near');
    run('ip', '-n', router, 'address', 'add', `${subnet}.9/29`, 'dev', 'far');
    run('ip', '-n', far, 'address', 'add', `${subnet}.10/29`, 'dev', 'router');
    run('ip', 'link', 'set', `near-${id}`, 'up');
    run('ip', 'route', 'add', `${subnet}.8/29`, 'via', `${subnet}.6`);
    for (const [name, device] of [
      [router, 'near'],
      [router, 'far'],
      [router, 'lo'],
      [far, 'router'],
      [far, 'lo'],
    ] as const) {
      run('ip', '-n', name, 'link', 'set', device, 'up');
    }
    run('ip', '-n', far, 'route', 'add', 'default', 'via', `${subnet}.9`);
    run('ip', 'netns', 'exec', router, 'sysctl', '-qw', 'net.ipv4.ip_forward=1');
    writeFileSync(join(folder, 'resolv.conf'), `nameserver ${subnet}.1\noptions timeout:1 attempts:2\n`);
    const network = new Network(id, folder, [`${subnet}.1`, `${subnet}.2`], await NameServer.start(`${subnet}.1`, 53));
    network.lead(network.near[0]);
    return network;
  }

  /** Points the gateway's name to addresses. */
  lead(...addresses: string[]): void {
    this.names.remove(GATEWAY);
    this.names.mend(GATEWAY);
    for (const data of addresses) this.names.add({ type: 'A', name: GATEWAY, data, ttl: 0 });
  }

  /** Makes the name server fail for the gateway's name. */
  forget(): void {
    this.names.break(GATEWAY);
  }

  /** Prefix of a command line that runs on the far host. */
  get launcher(): string[] {
    const command = 'mount --bind "$0" /etc/resolv.conf && exec "$@"';
    return ['ip', 'netns', 'exec', `far-${this.id}`, 'sh', '-c', command, join(this.folder, 'resolv.conf')];
  }

  /** Loses a share of all packets, or of those that an nftables condition selects. */
  lose(percent: number, condition = ''): void {
    const share = percent >= 100 ? '' : `numgen random mod 100 < ${percent}`;
    const rules = `table inet faults {
      chain forward {
        type filter hook forward priority 0
        ${condition} ${share} drop
      }
    }`;
    this.restore();
    execFileSync('ip', ['netns', 'exec', `router-${this.id}`, 'nft', '-f', '-'], { input: rules });
  }

  /** Ends the packet loss. */
  restore(): void {
    run('ip', 'netns', 'exec', `router-${this.id}`, 'nft', 'flush', 'ruleset');
  }

  /** Unplugs the far host. */
  unplug(): void {
    run('ip', '-n', `router-${this.id}`, 'link', 'set', 'far', 'down');
  }

  plug(): void {
    run('ip', '-n', `router-${this.id}`, 'link', 'set', 'far', 'up');
  }

  async close(): Promise<void> {
    await this.names.stop();
    for (const name of [`far-${this.id}`, `router-${this.id}`]) run('ip', 'netns', 'del', name);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Creates the namespace of a router, with the first free number from a random one on. */
function claimNumber(): number {
  const first = randomInt(256);
  for (let step = 0; step < 256; step++) {
    const number = (first + step) % 256;
    try {
      run('ip', 'netns', 'add', `router-${number}`);
      return number;
    } catch (error) {
      if (!String(error).includes('File exists')) throw error;
    }
  }
  throw new Error('no number left for a network: ip netns list shows the existing ones');
}

function run(command: string, ...args: string[]): void {
  execFileSync(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
}
