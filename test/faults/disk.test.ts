import { execFile } from 'node:child_process';
import { appendFileSync, chmodSync, chownSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { StatusReport } from '../../src/agent/api/status-report.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { Device } from '../agent/device.ts';
import { AgentProcess, CLI, deviceAgent } from '../support/agent-process.ts';
import { Disk, FailingDisk, NO_FAILING_DISK, NO_MOUNT } from '../support/disk.ts';
import { measured } from '../support/measured.ts';
import { firstOf, NO_ROOT, programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

async function startDevice(folder: string): Promise<Device> {
  const device = await Device.start(folder);
  onTestFinished(async () => void (await device.agent.end('SIGKILL')));
  return device;
}

/** A device with its own gateway, and a client of that gateway's management API. */
class Furnished {
  private constructor(
    readonly device: Device,
    readonly client: ManagementClient,
    readonly apiKey: string,
  ) {}

  /** One that has a tunnel and a bot user. */
  static async start(folder: string): Promise<Furnished> {
    const device = await startDevice(folder);
    const apiKey = (await deviceAgent(['gateway', 'api-key', 'create'], folder)).stdout.trim();
    const furnished = await Furnished.of(device, apiKey);
    await furnished.add('kept');
    return furnished;
  }

  static async resume(folder: string, apiKey: string): Promise<Furnished> {
    return Furnished.of(await startDevice(folder), apiKey);
  }

  static async of(device: Device, apiKey: string): Promise<Furnished> {
    const status = (await (await fetch(`${device.api}/status`)).json()) as { addresses: Record<string, string> };
    const baseUrl = String(status.addresses.gateway_api);
    return new Furnished(device, new ManagementClient({ baseUrl, apiKey, ca: device.ca, retries: 0 }), apiKey);
  }

  async add(name: string): Promise<void> {
    expect((await this.device.post({ forwards_to: 9, domain: `${name}.localhost` })).status).toBe(200);
    await this.client.botUsers.create({ name });
  }

  /** No change is taken, each with a word about it; everything else goes on. */
  async expectNoChanges(reason: RegExp): Promise<void> {
    const refused = await this.device.post({ forwards_to: 9, domain: 'refused.localhost' });
    expect([refused.status, await refused.json()]).toEqual([
      500,
      expect.objectContaining({ error_code: 'ERR_AGENT_NOT_PERSISTED', msg: expect.stringMatching(reason) }),
    ]);
    expect(await this.device.delete('kept')).toBe(500);
    await expect(this.client.botUsers.create({ name: 'refused' })).rejects.toMatchObject({ status: 503 });
    expect(await this.device.agent.logged('management request failed')).toMatchObject({
      err: { message: expect.stringMatching(reason) },
    });
    await this.expectKept(['kept']);
    // On a busy machine, an upstream that is refused or a tunnel that could not be deleted takes a moment.
    await expect.poll(async () => (await fetch(`${this.device.api}/readyz`)).status).toBe(200);
  }

  /** The status says what the refused change said. */
  async expectStatus(folder: string, reason: RegExp): Promise<void> {
    const status = await deviceAgent(['status'], folder, { AGENT_PORT: new URL(this.device.api).port });
    expect([status.code, status.stdout]).toEqual([1, expect.stringMatching(reason)]);
    expect(status.stdout).not.toContain('Everything works');
    const { storage } = (await (await fetch(`${this.device.api}/status`)).json()) as StatusReport;
    expect(storage.last_error).toMatchObject({ code: 'ERR_AGENT_NOT_PERSISTED' });
  }

  async expectKept(names: string[]): Promise<void> {
    expect((await this.device.tunnels()).map(({ domain }) => domain)).toEqual(names.map((name) => `${name}.localhost`));
    const { items } = await this.client.botUsers.list();
    expect(items.map(({ name }) => name).toSorted()).toEqual([...names, 'embedded agent'].toSorted());
  }
}

function fill(file: string): void {
  const chunks = [1 << 20, 4096, 1].map((size) => Buffer.alloc(size));
  for (const chunk of chunks) {
    expect(() => {
      for (;;) appendFileSync(file, chunk);
    }).toThrow('ENOSPC');
  }
}

describe('under a running agent and its gateway', () => {
  it('a full disk only blocks changes, until there is room again', {
    timeout: 300_000,
    ...unless(NO_MOUNT),
  }, async () => {
    const disk = Disk.mount('size=4m');
    const before = await Furnished.start(disk.path);
    const filler = join(disk.path, 'filler');
    fill(filler);
    await before.expectNoChanges(/the disk is full: free some space/);
    await before.expectStatus(disk.path, /✖ cannot write to .*\n {2}→ the disk is full: free some space/);
    rmSync(filler);
    await before.add('later');
    expect(await before.device.agent.end()).toBe(0);
    const after = await Furnished.resume(disk.path, before.apiKey);
    await after.expectKept(['kept', 'later']);
    measured({ fault: 'disk that is full' });
  });

  it('a failing disk only blocks changes, until it is repaired', {
    timeout: 300_000,
    ...unless(NO_FAILING_DISK),
  }, async () => {
    const disk = FailingDisk.mount();
    const before = await Furnished.start(disk.path);
    disk.fail();
    await before.expectNoChanges(/file system is read-only.*check dmesg/);
    await before.expectStatus(disk.path, /✖ cannot write to .*\n.*check dmesg/);
    expect(await before.device.agent.end()).toBe(0);
    disk.repair();
    const after = await Furnished.resume(disk.path, before.apiKey);
    await after.add('later');
    await after.expectKept(['kept', 'later']);
    expect(await after.device.agent.end()).toBe(0);
    measured({ fault: 'disk that fails while agent and gateway have their files open' });
  });
});

it('a gateway that starts on a full disk serves its accounts, and takes no changes until it has room', {
  timeout: 300_000,
  ...unless(NO_FAILING_DISK),
}, async () => {
  const disk = FailingDisk.mount();
  const [first] = await startGateway(disk.path, 'none');
  expect(await first.end()).toBe(0);
  const apiKey = (await deviceAgent(['gateway', 'api-key', 'create'], disk.path)).stdout.trim();
  // With 8 KiB, the index of the database finds room, but none of what it is used for.
  for (const freeKiB of [0, 8, 40]) {
    const makeRoom = disk.fillTo(freeKiB);
    const [gateway, client] = await startGateway(disk.path, apiKey);
    expect(
      await gateway.logged('disk is read-only or full: existing accounts keep working, changes are rejected'),
    ).toMatchObject({
      reason: expect.stringContaining('the disk is full: free some space'),
    });
    expect((await client.botUsers.list()).items).toEqual([]);
    await expect(client.botUsers.create({ name: 'refused' })).rejects.toMatchObject({ status: 503 });
    const key = await deviceAgent(['gateway', 'api-key', 'create'], disk.path);
    expect([key.code, key.stdout, key.stderr]).toEqual([1, '', expect.stringContaining('the disk is full')]);
    expect(await gateway.end()).toBe(0);
    makeRoom();
  }
  const [gateway, client] = await startGateway(disk.path, apiKey);
  // Of a loop device. Without this lock, the next process takes the index for an abandoned one, and truncates it under the gateway.
  const { ino } = statSync(join(disk.path, 'data/gateway/gateway.db-shm'));
  expect(readFileSync('/proc/locks', 'utf8')).toMatch(new RegExp(`READ +\\d+ 07:[0-9a-f]+:${ino} 128 128`));
  await client.botUsers.create({ name: 'taken' });
  expect(await gateway.end()).toBe(0);
  measured({ fault: 'disk that is full when a gateway starts' });
});

async function startGateway(folder: string, apiKey: string): Promise<[AgentProcess, ManagementClient]> {
  const gateway = AgentProcess.start(folder, {}, ['gateway']);
  const { api, ca } = await gateway.logged('gateway listening');
  const client = new ManagementClient({
    baseUrl: String(api),
    apiKey,
    ca: readFileSync(String(ca), 'utf8'),
    retries: 0,
  });
  return [gateway, client];
}

const NOBODY = 65_534;
const AS_NOBODY = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', process.execPath, CLI];
/** The user nobody cannot run a checkout in a private home folder. */
const NO_OTHER_USER = firstOf(
  NO_ROOT,
  programMissing('setpriv', ...AS_NOBODY, '--version') && 'nobody cannot run the agent here',
);

const OWNED = [
  '',
  'tunnels.json',
  'gateway',
  'gateway/ca.pem',
  'gateway/ca-key.pem',
  'gateway/encryption.key',
  'gateway/gateway.db',
];

it('a file of another user is an error that says what to do, and nothing changes', {
  timeout: 300_000,
  ...unless(NO_OTHER_USER),
}, async () => {
  const folder = temporaryFolder();
  const { device } = await Furnished.start(folder);
  expect(await device.agent.end()).toBe(0);
  const paths = ['', ...(readdirSync(folder, { recursive: true }) as string[])].map((path) => join(folder, path));
  for (const path of paths) chownSync(path, NOBODY, NOBODY);
  for (const name of OWNED) {
    const path = join(folder, 'data', name);
    chownSync(path, 0, 0);
    chmodSync(path, statSync(path).mode & 0o700);
    const before = contents(folder);
    const { code, stderr } = await runAsNobody(folder);
    expect(code, stderr).toBe(1);
    expect(stderr).toMatch(/EACCES.*(chown|make it readable)/s);
    expect(stderr).toContain(path);
    expect(contents(folder), name).toEqual(before);
    chownSync(path, NOBODY, NOBODY);
  }
  measured({ fault: 'file or folder of another user', tried: OWNED.length });
});

/** All files but the gateway's database, which may have been up already, with an authtoken that is new at each start. */
function contents(folder: string): Record<string, string> {
  const all = readdirSync(folder, { recursive: true }) as string[];
  const names = all.filter((name) => !name.includes('/lock/') && !name.includes('gateway.db'));
  const files = names.filter((name) => statSync(join(folder, name)).isFile());
  return Object.fromEntries(files.map((name) => [name, readFileSync(join(folder, name), 'latin1')]));
}

function runAsNobody(folder: string): Promise<{ code: number; stderr: string }> {
  const { PATH, TMPDIR } = process.env;
  const env = { PATH, TMPDIR, AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0' };
  return new Promise((resolve) => {
    execFile('setpriv', AS_NOBODY, { cwd: folder, env, timeout: 60_000 }, (error, _stdout, stderr) =>
      resolve({ code: Number(error?.code ?? -1), stderr }),
    );
  });
}
