import type { StoreLocation } from '../gateway/store/open-gateway-store.ts';
import type { Store } from '../gateway/store/store.ts';

/**
 * Opens the store of a gateway that was started before: in the wrong folder, a command must not create another one. The
 * database's code is loaded only here: most commands never need it.
 */
export async function withStore<T>(location: StoreLocation, work: (store: Store) => Promise<T> | T): Promise<T> {
  const { expectGateway, openGatewayStore } = await import('../gateway/store/open-gateway-store.ts');
  expectGateway(location);
  const store = openGatewayStore(location, 'refuse');
  try {
    return await work(store);
  } finally {
    store.database.close();
  }
}
