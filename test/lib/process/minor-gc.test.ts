import { afterEach, expect, it, vi } from 'vitest';

type MinorGc = typeof import('../../../src/lib/process/minor-gc.ts');

let loads = 0;

afterEach(() => void vi.unstubAllGlobals());

/** The module looks for the collector when it is loaded: loads another instance. */
function load(): Promise<MinorGc> {
  return import(new URL(`../../../src/lib/process/minor-gc.ts?${++loads}`, import.meta.url).href);
}

it('trackBuffer collects the young generation after every 4 MiB of large buffers, ignoring small ones', async () => {
  const gc = vi.fn();
  vi.stubGlobal('gc', gc);
  const { trackBuffer } = await load();
  for (let at = 0; at < 100_000; at++) trackBuffer(1000);
  expect(gc).not.toHaveBeenCalled();
  for (let at = 0; at < 160; at++) trackBuffer(65_536);
  expect(gc.mock.calls).toEqual([[{ type: 'minor' }], [{ type: 'minor' }]]);
});

it('trackBuffer does nothing when Node was started without --expose-gc', async () => {
  vi.stubGlobal('gc', undefined);
  const { trackBuffer } = await load();
  for (let at = 0; at < 160; at++) trackBuffer(65_536);
});
