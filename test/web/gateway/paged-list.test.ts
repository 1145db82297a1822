import { afterEach, beforeEach, expect, it, vi } from 'vitest';

// By its address: the types of a browser are not those of the tests.
const address = new URL('../../../src/web/gateway/paged-list.ts', import.meta.url).href;

beforeEach(() => void vi.stubGlobal('window', { setTimeout, clearTimeout, addEventListener: () => {} }));
afterEach(() => void vi.unstubAllGlobals());

it('a list loads again after an answer that it could not read', async () => {
  const { PagedList } = await import(address);
  const answers = [{}, { items: [{ id: 'rd_1' }], next_page_uri: null }];
  vi.stubGlobal('fetch', async () => Response.json(answers.shift()));
  const list = new PagedList({ path: '/reserved_domains', listKey: 'items' });
  await expect(list.refresh()).rejects.toThrow(TypeError);
  await list.refresh();
  expect(list.items.value).toEqual([{ id: 'rd_1' }]);
});
