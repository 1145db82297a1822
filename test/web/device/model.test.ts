import { afterEach, expect, it } from 'vitest';

afterEach(() => {
  for (const name of ['EventSource', 'window']) Reflect.deleteProperty(globalThis, name);
});

it('a late part of a tunnel that was deleted on the page does not bring it back', async () => {
  const events = new EventTarget();
  const window = { setTimeout: () => 0, clearTimeout: () => {}, addEventListener: () => {} };
  const EventSource = function open() {
    return Object.assign(events, { close: () => {} });
  };
  Object.assign(globalThis, { EventSource, window });
  // By its address: the types of a browser are not those of the tests.
  const { openModel } = await import(new URL('../../../src/web/device/model.ts', import.meta.url).href);
  const model = openModel();
  const send = (name: string, data: object) =>
    events.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  const [cam, door] = ['cam', 'door'].map((id) => ({ id, url: `https://${id}.localhost`, status: 'online' }));
  send('snapshot', { name: 'cabinet-7', status: { uptime_seconds: 0 }, tunnels: [cam], log: [] });
  model.forget('cam');
  send('change', { tunnels: [{ id: 'cam', status: 'offline' }, door] });
  expect(model.tunnels.value).toEqual([door]);
  send('change', { tunnels: [{ id: 'door', status: 'offline' }] });
  expect(model.tunnels.value).toEqual([{ ...door, status: 'offline' }]);
});
