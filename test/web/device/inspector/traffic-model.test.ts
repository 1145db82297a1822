import { afterEach, expect, it, vi } from 'vitest';

afterEach(() => void vi.unstubAllGlobals());

it('a page of older requests that a new snapshot overtook hides none between the two', async () => {
  const events = Object.assign(new EventTarget(), { close: () => {} });
  const asked: string[] = [];
  let answer = (_: Response) => {};
  vi.stubGlobal('EventSource', function open() {
    return events;
  });
  const location = { hash: '' };
  vi.stubGlobal('window', { location, setTimeout: () => 0, clearTimeout: () => {}, addEventListener: () => {} });
  vi.stubGlobal('fetch', (path: string) => {
    asked.push(new URL(path, 'http://page').searchParams.get('before') ?? '');
    return new Promise((resolve) => {
      answer = resolve;
    });
  });
  // By its address: the types of a browser are not those of the tests.
  const address = new URL('../../../../src/web/device/inspector/traffic-model.ts', import.meta.url);
  const { openTraffic } = await import(address.href);
  const requests = (...ids: number[]) =>
    ids.map((id) => ({ id: String(id), method: 'GET', path: '/', duration_ms: 1 }));
  const snapshot = (...ids: number[]) => {
    const data = JSON.stringify({ inspection: { requests: 9 }, requests: requests(...ids) });
    events.dispatchEvent(new MessageEvent('snapshot', { data }));
  };
  const model = openTraffic('https://cam.localhost');
  const older = async (...ids: number[]) => {
    const loaded = model.loadOlder();
    await vi.waitFor(() => expect(asked).toHaveLength(1));
    return { loaded, arrive: () => answer(Response.json(requests(...ids))) };
  };
  snapshot(5, 4);
  const { loaded, arrive } = await older(3, 2);
  snapshot(9, 8);
  arrive();
  await loaded;
  expect(model.matching.value.map(({ id }: { id: string }) => id)).toEqual(['9', '8']);
  asked.length = 0;
  await older();
  expect([model.hasOlder.value, asked]).toEqual([true, ['8']]);
});
