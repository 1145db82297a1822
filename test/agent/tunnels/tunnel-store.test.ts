import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Adapter } from 'lowdb';
import { describe, expect, it } from 'vitest';
import type { Tunnel } from '../../../src/agent/tunnels/tunnel.ts';
import { type StoredTunnels, TunnelStore, tunnelsCodec } from '../../../src/agent/tunnels/tunnels-file.ts';
import { OperatorError } from '../../../src/lib/errors.ts';
import { DurableFile } from '../../../src/lib/files/durable-file.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const tunnel = (id: string): Tunnel => ({
  id,
  protocol: 'http',
  forwards_to: 'localhost:8001',
  domain: `${id}.localhost`,
  url: `https://${id}.localhost:8443`,
  policy: { inbound: [], outbound: [{ actions: [{ type: 'deny', config: null }] }] },
  created_at: '2026-08-01T00:00:00.000Z',
});

/** Counts writes, and lets the test decide when each ends and how. */
class SteeredAdapter implements Adapter<StoredTunnels> {
  readonly written: string[][] = [];
  #ends: { resolve: () => void; reject: (error: Error) => void }[] = [];

  async read(): Promise<null> {
    return null;
  }

  write({ tunnels }: StoredTunnels): Promise<void> {
    this.written.push(tunnels.map(({ id }) => id));
    return new Promise((resolve, reject) => this.#ends.push({ resolve, reject }));
  }

  async end(error?: Error): Promise<void> {
    const write = this.#ends.shift();
    if (error) write?.reject(error);
    else write?.resolve();
    await new Promise(setImmediate);
  }
}

const openStore = async (path: string) => {
  const store = new TunnelStore(new DurableFile({ path, codec: tunnelsCodec, log: silentLog }));
  await store.open();
  return store;
};

describe('changes', () => {
  it('that could not be written are a failure until the disk can be written again, without another change', async () => {
    const adapter = new SteeredAdapter();
    const store = new TunnelStore(adapter, 1);
    const saved = store.save(tunnel('a'));
    const refused = expect(saved).rejects.toThrow('disk full');
    await adapter.end(new Error('disk full'));
    await refused;
    for (const [retry, error] of [new Error('still full'), undefined].entries()) {
      expect(store.failure).not.toBeNull();
      await until(() => adapter.written.length === retry + 2, 'another attempt');
      await adapter.end(error);
    }
    expect(store.failure).toBeNull();
    expect(adapter.written).toEqual([['a'], [], []]);
    expect(store.list()).toEqual([]);
  });

  it('share the next write when they arrive during one, and resolve once durable', async () => {
    const adapter = new SteeredAdapter();
    const store = new TunnelStore(adapter);
    const resolved: string[] = [];
    for (const id of ['a', 'b', 'c']) void store.save(tunnel(id)).then(() => resolved.push(id));
    void store.remove('b').then(() => resolved.push('-b'));
    await adapter.end();
    expect(adapter.written).toEqual([['a'], ['a', 'c']]);
    expect(resolved).toEqual(['a']);
    expect(store.list().map(({ id }) => id)).toEqual(['a']);
    await adapter.end();
    expect(resolved).toEqual(['a', 'b', 'c', '-b']);
    expect(store.list().map(({ id }) => id)).toEqual(['a', 'c']);
  });

  it('are undone when they cannot be written, and do not block later ones', async () => {
    const adapter = new SteeredAdapter();
    const store = new TunnelStore(adapter);
    const first = store.save(tunnel('a'));
    const second = store.save(tunnel('b'));
    void adapter.end(new Error('ENOSPC: no space left on device'));
    await expect(first).rejects.toMatchObject({ status: 500, code: 'ERR_AGENT_NOT_PERSISTED' });
    await adapter.end();
    await second;
    expect(store.list().map(({ id }) => id)).toEqual(['b']);
    expect(adapter.written.at(-1)).toEqual(['b']);
  });
});

describe('tunnels.json', () => {
  it('restores tunnels unchanged, in order of creation', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const store = await openStore(path);
    await Promise.all(['c', 'a', 'b'].map((id) => store.save(tunnel(id))));
    await store.save({ ...tunnel('a'), url: 'https://a.localhost:9443' });
    const reopened = await openStore(path);
    expect(reopened.list()).toEqual([tunnel('c'), { ...tunnel('a'), url: 'https://a.localhost:9443' }, tunnel('b')]);
  });

  it('that is damaged brings back no deleted tunnel', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const store = await openStore(path);
    for (const id of ['a', 'b']) await store.save(tunnel(id));
    await store.remove('a');
    await writeFile(path, '\0\0\0');
    expect((await openStore(path)).list()).toEqual([tunnel('b')]);
  });

  it('is not written when nothing changes', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const store = await openStore(path);
    await store.save(tunnel('a'));
    const { ino, mtimeMs } = await stat(path);
    await store.save(tunnel('a'));
    await store.remove('unknown');
    expect(await stat(path)).toMatchObject({ ino, mtimeMs });
  });

  it('of a newer version stops the start and stays unchanged', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const text = '{"version":2,"tunnels":"whatever that may be by then"}';
    await writeFile(path, text);
    await expect(openStore(path)).rejects.toThrow(OperatorError);
    await expect(openStore(path)).rejects.toThrow('newer version');
    expect(await readFile(path, 'utf8')).toBe(text);
  });

  it('keeps unknown members of a later version', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const newer = {
      ...tunnel('a'),
      protocol: 'udp',
      policy: { on_quic: [{ actions: [{ type: 'teleport' }] }] },
      created_at: '2027-08-01T00:00:00+02:00',
      labels: { site: 'a' },
    };
    await writeFile(path, JSON.stringify({ version: 1, tunnels: [newer, tunnel('b')], groups: [] }));
    const store = await openStore(path);
    expect(store.list()).toEqual([newer, tunnel('b')]);
    await store.save(tunnel('c'));
    expect((await openStore(path)).list()).toEqual([newer, tunnel('b'), tunnel('c')]);
  });

  it('keeps a tunnel whose line was copied by hand with its id', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const copy = { ...tunnel('a'), domain: 'copy.localhost', url: 'https://copy.localhost:8443' };
    await writeFile(path, JSON.stringify({ version: 1, tunnels: [tunnel('a'), copy] }));
    const store = await openStore(path);
    const [first, second] = store.list();
    expect([first, second]).toEqual([tunnel('a'), { ...copy, id: expect.not.stringMatching(/^a$/) }]);
    await store.remove('a');
    expect((await openStore(path)).list()).toEqual([second]);
  });

  it('takes an edit by hand once its line of checksums is deleted, and the copy until then', async () => {
    const folder = temporaryFolder();
    const path = join(folder, 'tunnels.json');
    const store = await openStore(path);
    for (const id of ['a', 'b']) await store.save(tunnel(id));
    const text = await readFile(path, 'utf8');
    const edited = text.replace('localhost:8001', 'localhost:9001');
    await writeFile(path, edited);
    expect((await openStore(path)).list()).toEqual([tunnel('a'), tunnel('b')]);
    const [kept = ''] = (await readdir(folder)).filter((name) => name.includes('damaged'));
    expect(await readFile(join(folder, kept), 'utf8')).toBe(edited);
    await writeFile(path, edited.split('\n').toSpliced(1, 1).join('\n'));
    const changed = [{ ...tunnel('a'), forwards_to: 'localhost:9001' }, tunnel('b')];
    expect((await openStore(path)).list()).toEqual(changed);
    // From now on it has checksums again.
    await writeFile(path, (await readFile(path, 'utf8')).replace('localhost:9001', 'localhost:9000'));
    expect((await openStore(path)).list()).toEqual(changed);
  });

  it('formatted by another program is the same', async () => {
    const path = join(temporaryFolder(), 'tunnels.json');
    const store = await openStore(path);
    await store.save(tunnel('a'));
    const text = await readFile(path, 'utf8');
    await writeFile(path, JSON.stringify(JSON.parse(text), null, 2));
    expect((await openStore(path)).list()).toEqual([tunnel('a')]);
    expect(await readFile(path, 'utf8')).toBe(text);
  });

  it('with one invalid tunnel keeps the others, and the original under another name', async () => {
    const folder = temporaryFolder();
    const path = join(folder, 'tunnels.json');
    const text = JSON.stringify({ version: 1, tunnels: [tunnel('a'), { ...tunnel('b'), url: 'b' }, tunnel('c')] });
    await writeFile(path, text);
    await writeFile(`${path}.bak`, JSON.stringify({ version: 1, tunnels: [tunnel('a')] }));
    expect((await openStore(path)).list()).toEqual([tunnel('a'), tunnel('c')]);
    // Once is enough: the file is in order now.
    expect((await openStore(path)).list()).toEqual([tunnel('a'), tunnel('c')]);
    const [damaged = '', ...more] = (await readdir(folder)).filter((name) => name.includes('damaged'));
    expect([await readFile(join(folder, damaged), 'utf8'), more]).toEqual([text, []]);
  });

  it.each(['{"version":1,"tunnels":[{"id":"a"}]}', '{"version":1}', '[]', 'null', ''])(
    'that holds %j is damaged',
    async (text) => {
      const folder = temporaryFolder();
      await writeFile(join(folder, 'tunnels.json'), text);
      const store = await openStore(join(folder, 'tunnels.json'));
      expect(store.list()).toEqual([]);
      expect(await readdir(folder)).toEqual([expect.stringMatching(/^tunnels\.json\.damaged-/)]);
    },
  );
});
