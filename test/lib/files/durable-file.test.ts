import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Tunnel } from '../../../src/agent/tunnels/tunnel.ts';
import { checksumOf, tunnelsCodec } from '../../../src/agent/tunnels/tunnels-file.ts';
import { OperatorError } from '../../../src/lib/errors.ts';
import { type Codec, DurableFile } from '../../../src/lib/files/durable-file.ts';
import { rounds } from '../../faults/rounds.ts';
import { measured } from '../../support/measured.ts';
import { PowerCut, PowerCutFiles } from '../../support/power-cut-files.ts';
import { seeded } from '../../support/seeded.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const numbers: Codec<number[]> = {
  encode: (data) => JSON.stringify(data),
  decode: (text) => {
    const data: unknown = JSON.parse(text);
    if (!Array.isArray(data)) throw new Error('not a list');
    return data as number[];
  },
  merge: (data) => data,
};

const PATH = '/data/numbers.json';
const on = (files: PowerCutFiles) => new DurableFile({ path: PATH, codec: numbers, log: silentLog, files });

describe('a power cut', () => {
  it('at any step leaves the old or the new content and all acknowledged changes, though the file is damaged', async () => {
    let cuts = 0;
    for (let seed = 0; seed < 300; seed++) {
      let files = new PowerCutFiles(new Map(), seeded(seed));
      let acknowledged: number[] | null = null;
      for (let life = 0; life < 12; life++) {
        files.operationsLeft = Math.floor(seeded(seed * 100 + life)() * 40);
        let attempted = acknowledged;
        try {
          const file = on(files);
          const found: number[] | null = await file.read();
          acknowledged = found;
          for (let n = 0; ; n++) {
            attempted = [...(acknowledged ?? []), life * 100 + n];
            await file.write(attempted);
            acknowledged = attempted;
          }
        } catch (error) {
          if (!(error instanceof PowerCut) && !(error instanceof OperatorError)) throw error;
          cuts++;
        }
        files = files.restart();
        const isDamaged = files.textOf(PATH) !== undefined && seeded(seed * 100 + life)() < 0.3;
        if (isDamaged) files.damage(PATH, '[');
        const found = await on(files).read();
        expect([acknowledged, attempted]).toContainEqual(found);
        acknowledged = found;
      }
    }
    expect(cuts).toBe(3_600);
    measured({
      fault: 'power cut at any step of writing the tunnels, with what was not synced torn or undone',
      tried: cuts,
    });
  });

  it('while a damaged file is set aside loses neither the backup nor the damaged file', async () => {
    for (let steps = 0; steps < 20; steps++) {
      const files = new PowerCutFiles(new Map(), seeded(steps));
      const file = on(files);
      await file.write([1]);
      await file.write([1, 2]);
      files.damage(PATH, '[1, 2');
      files.operationsLeft = steps;
      await on(files)
        .read()
        .catch(() => {});
      const after = files.restart();
      expect(await on(after).read()).toEqual([1, 2]);
      expect(after.paths().some((path) => after.textOf(path) === '[1, 2')).toBe(true);
    }
  });
});

const TUNNELS = '/data/tunnels.json';
const tunnels = (files: PowerCutFiles) =>
  new DurableFile({ path: TUNNELS, codec: tunnelsCodec, log: silentLog, files });
const CAMERAS: Tunnel[] = Array.from({ length: 5 }, (_, at) => ({
  id: `0d3f5c1e-${at}`,
  protocol: at === 4 ? 'tcp' : 'http',
  forwards_to: `localhost:800${at}`,
  domain: `camera-${at}.hotel.example`,
  url: `https://camera-${at}.hotel.example`,
  policy: at === 0 ? null : { on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 403 } }] }] },
  created_at: `2026-08-01T00:00:0${at}.000Z`,
  note: 'Empfang – Türkamera',
}));

const flipped = (text: string, chance: () => number): string => {
  const bytes = Buffer.from(text);
  const bit = Math.floor(chance() * bytes.length * 8);
  bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
  return bytes.toString();
};

describe('flipped bits', () => {
  const FLIPS = rounds({ short: 400, full: 10_000 });

  it.each([
    ['in the file', true, false],
    ['in its copy', false, true],
    ['in both', true, true],
  ])('%s change no tunnel, and lose none that one of them still has', async (where, inFile, inCopy) => {
    const text = tunnelsCodec.encode({ version: 1, tunnels: CAMERAS });
    // What remains of a tunnel is usable if both its own line and its checksum are intact.
    const parts = CAMERAS.map((tunnel) => {
      const line = JSON.stringify(tunnel);
      return { line, checksum: JSON.stringify(checksumOf(line)) };
    });
    const chance = seeded(FLIPS);
    let lost = 0;
    for (let flip = 0; flip < FLIPS; flip++) {
      const [main, copy] = [inFile ? flipped(text, chance) : text, inCopy ? flipped(text, chance) : text];
      const files = new PowerCutFiles();
      files.damage(TUNNELS, main);
      files.damage(`${TUNNELS}.bak`, copy);
      const found = (await tunnels(files).read())?.tunnels ?? [];
      const isThere = ({ line, checksum }: (typeof parts)[number]) =>
        [main, copy].some((each) => each.split(/,?\n/).includes(line) && each.includes(checksum));
      const there = CAMERAS.filter((_tunnel, at) => isThere(parts[at] as (typeof parts)[number]));
      expect(CAMERAS, main).toEqual(expect.arrayContaining([...found]));
      expect(found, `${main}\n${copy}`).toEqual(expect.arrayContaining(there));
      lost += CAMERAS.length - found.length;
      // In order again, twice.
      const after = [TUNNELS, `${TUNNELS}.bak`].map((path) => files.textOf(path));
      expect(after).toEqual(Array(2).fill(tunnelsCodec.encode({ version: 1, tunnels: found })));
    }
    if (!(inFile && inCopy)) expect(lost).toBe(0);
    const note = lost === 0 ? '' : `${lost} tunnels were damaged in both`;
    measured({ fault: `a flipped bit ${where} of tunnels.json`, tried: FLIPS, note });
  });

  it('are found in files of older versions where they leave no valid tunnel, and upgraded files have checksums', async () => {
    const files = new PowerCutFiles();
    const old = JSON.stringify({ version: 1, tunnels: CAMERAS });
    files.damage(TUNNELS, old.replace('"domain":"camera-1', '"domaio":"camera-1'));
    files.damage(`${TUNNELS}.bak`, old);
    expect((await tunnels(files).read())?.tunnels).toEqual(CAMERAS);
    const upgraded = files.textOf(TUNNELS);
    expect(upgraded).toBe(tunnelsCodec.encode({ version: 1, tunnels: CAMERAS }));
    expect(files.textOf(`${TUNNELS}.bak`)).toBe(upgraded);
  });

  it('and a disk that accepts no writes leave the whole tunnels in memory and the files as they are', async () => {
    const text = tunnelsCodec.encode({ version: 1, tunnels: CAMERAS });
    const files = new PowerCutFiles();
    const damaged = text.replace('localhost:8001', 'localhost:8003');
    files.damage(TUNNELS, damaged);
    files.damage(`${TUNNELS}.bak`, text);
    files.failure = { operation: 'write', code: 'EROFS' };
    const file = tunnels(files);
    expect((await file.read())?.tunnels).toEqual(CAMERAS);
    expect([files.textOf(TUNNELS), files.textOf(`${TUNNELS}.bak`)]).toEqual([damaged, text]);
    files.failure = null;
    await file.write({ version: 1, tunnels: CAMERAS });
    expect([files.textOf(TUNNELS), files.textOf(`${TUNNELS}.bak`)]).toEqual([text, text]);
  });
});

describe('a disk that accepts no writes', () => {
  it.each(['EROFS', 'ENOSPC', 'EIO'])(
    '(%s) gives the last good copy, and keeps the damaged file once it can be written again',
    async (code) => {
      const files = new PowerCutFiles();
      const before = on(files);
      await before.write([1]);
      await before.write([1, 2]);
      files.damage(PATH, '[1, 2');
      files.failure = { operation: 'write', code };
      const file = on(files);
      expect(await file.read()).toEqual([1, 2]);
      await expect(file.write([1, 3])).rejects.toThrow(code);
      expect(files.textOf(PATH)).toBe('[1, 2');
      files.failure = null;
      await file.write([1, 3]);
      expect(await on(files).read()).toEqual([1, 3]);
      expect(files.paths().some((path) => files.textOf(path) === '[1, 2')).toBe(true);
    },
  );
});

describe('a write that fails', () => {
  it('is followed by one that fails too while the disk does, with the same text as before', async () => {
    const files = new PowerCutFiles();
    const file = on(files);
    await file.write([1]);
    files.failure = { operation: 'write', code: 'ENOSPC' };
    await expect(file.write([1, 2])).rejects.toThrow('ENOSPC');
    await expect(file.write([1])).rejects.toThrow('ENOSPC');
    files.failure = null;
    await file.write([1]);
    expect(await on(files).read()).toEqual([1]);
  });

  it.each(['write', 'sync', 'rename', 'syncFolder'])('in %s leaves the old content on the disk', async (operation) => {
    const files = new PowerCutFiles();
    const file = on(files);
    await file.write([1]);
    await file.write([2]);
    files.failure = { operation, code: 'ENOSPC' };
    await expect(file.write([3])).rejects.toThrow('ENOSPC');
    files.failure = null;
    if (operation !== 'syncFolder') expect(files.textOf(PATH)).toBe('[2]');
    await file.write([2]);
    expect(await on(files.restart()).read()).toEqual([2]);
    await file.write([4]);
    expect(await on(files.restart()).read()).toEqual([4]);
  });
});

describe('on a real disk', () => {
  const fileIn = (folder: string, log = silentLog) =>
    new DurableFile({ path: join(folder, 'numbers.json'), codec: numbers, log });

  it('writes two files with mode 0600, and skips unchanged content', async () => {
    const folder = temporaryFolder();
    const path = join(folder, 'numbers.json');
    const file = fileIn(folder);
    expect(await file.read()).toBeNull();
    await file.write([1]);
    await file.write([2]);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readFile(`${path}.bak`, 'utf8')).toBe('[2]');
    expect((await stat(`${path}.bak`)).mode & 0o777).toBe(0o600);
    const { ino } = await stat(path);
    await file.write([2]);
    expect((await stat(path)).ino).toBe(ino);
    expect(await readdir(folder)).toEqual(['numbers.json', 'numbers.json.bak']);
  });

  it('sets a damaged file aside, logs that, and continues with the last good copy', async () => {
    const folder = temporaryFolder();
    const file = fileIn(folder);
    await file.write([1]);
    await file.write([2]);
    await writeFile(join(folder, 'numbers.json'), '\0\0\0\0');
    const { log, lines } = recordingLog();
    expect(await fileIn(folder, log).read()).toEqual([2]);
    expect(lines.map(({ msg }) => msg)).toEqual([
      'damaged file set aside',
      'file missing or damaged; last good copy restored',
    ]);
    expect(await readFile(String(lines[0]?.kept), 'utf8')).toBe('\0\0\0\0');
    expect(await fileIn(folder).read()).toEqual([2]);
  });

  it('keeps at most five damaged files, and starts empty when the backup is damaged too', async () => {
    const folder = temporaryFolder();
    for (let n = 0; n < 8; n++) {
      await writeFile(join(folder, 'numbers.json'), `damaged ${n}`);
      expect(await fileIn(folder).read()).toBeNull();
    }
    const names = await readdir(folder);
    expect(names).toHaveLength(5);
    const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
    expect(texts).toContain('damaged 7');
    await writeFile(join(folder, 'numbers.json.bak'), 'damaged copy');
    expect(await fileIn(folder).read()).toBeNull();
    await fileIn(folder).write([1]);
    expect(await fileIn(folder).read()).toEqual([1]);
  });

  it('uses the copy when the file is missing', async () => {
    const folder = temporaryFolder();
    await writeFile(join(folder, 'numbers.json.bak'), '[7]');
    expect(await fileIn(folder).read()).toEqual([7]);
    expect(await readFile(join(folder, 'numbers.json'), 'utf8')).toBe('[7]');
  });

  it('gives a copy of older content the content of the file at the start', async () => {
    const folder = temporaryFolder();
    await writeFile(join(folder, 'numbers.json'), '[8]');
    await writeFile(join(folder, 'numbers.json.bak'), '[8, 9]');
    expect(await fileIn(folder).read()).toEqual([8]);
    await writeFile(join(folder, 'numbers.json'), '[8');
    expect(await fileIn(folder).read()).toEqual([8]);
  });

  it('writes a file that was deleted meanwhile again, with or without the backup', async () => {
    const folder = temporaryFolder();
    const file = fileIn(folder);
    await file.write([1]);
    for (const [n, removed] of [['numbers.json'], ['numbers.json', 'numbers.json.bak']].entries()) {
      for (const name of removed) await rm(join(folder, name), { force: true });
      await file.write([1, n]);
      expect(await fileIn(folder).read()).toEqual([1, n]);
    }
  });

  it('stops the start when the file is unreadable, instead of starting empty', async () => {
    const folder = temporaryFolder();
    await mkdir(join(folder, 'numbers.json'));
    await expect(fileIn(folder).read()).rejects.toThrow(OperatorError);
    const forbidden = new PowerCutFiles();
    forbidden.failure = { operation: 'read', code: 'EACCES' };
    await expect(on(forbidden).read()).rejects.toThrow('make it readable');
  });
});
