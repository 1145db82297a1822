import { beforeEach, expect, it, vi } from 'vitest';

beforeEach(() => {
  vi.resetModules();
  return () => vi.unstubAllGlobals();
});

async function transfer(count: number, bytes: number): Promise<void> {
  const { trackBuffer } = await import('../../../src/lib/process/minor-gc.ts');
  for (let at = 0; at < count; at += 1) trackBuffer(bytes);
}

it('trackBuffer collects the young generation after every 4 MiB of large buffers, ignoring small ones', async () => {
  const gc = vi.fn();
  vi.stubGlobal('gc', gc);
  await transfer(100_000, 1000);
  expect(gc).not.toHaveBeenCalled();
  await transfer(160, 65_536);
  expect(gc.mock.calls).toEqual([[{ type: 'minor' }], [{ type: 'minor' }]]);
});

it('trackBuffer does nothing when Node was started without --expose-gc', async () => {
  vi.stubGlobal('gc', undefined);
  await expect(transfer(160, 65_536)).resolves.toBeUndefined();
});
