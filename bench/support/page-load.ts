import type { BrowserContext, CDPSession, Page } from 'playwright-core';

/** How a browser reaches the pages. */
export interface Network {
  /** Milliseconds from a request to its answer. */
  latency: number;
  /** kbit/s. */
  down: number;
  up: number;
}

export interface PageLoad {
  /** Milliseconds from the navigation to the first paint of content, and until what people look for is there. */
  paint: number;
  state: number;
  /** All until then, with headers, as they were sent. */
  requests: number;
  bytes: number;
}

/** An open page, and what it has loaded. */
export interface LoadedPage extends PageLoad {
  /** Bytes of all answers so far. */
  received(): number;
  close(): Promise<void>;
}

/** @param shown selector of what people look for */
export async function load(context: BrowserContext, url: string, shown: string, over?: Network): Promise<LoadedPage> {
  const page = await context.newPage();
  const network = await context.newCDPSession(page);
  await network.send('Network.enable');
  await network.send('Network.clearBrowserCache');
  if (over) await limit(network, over);
  const sizes = countBytes(network);
  const received = () => [...sizes.values()].reduce((sum, size) => sum + size, 0);
  await page.addInitScript(`new MutationObserver((_, observer) => {
    if (!document.querySelector(${JSON.stringify(shown)})) return;
    observer.disconnect();
    performance.mark('shown');
  }).observe(document, { childList: true, subtree: true })`);
  await page.goto(url);
  await page.locator(shown).first().waitFor();
  const [requests, bytes] = [sizes.size, received()];
  const { paint, state } = await times(page);
  return { paint, state, requests, bytes, received, close: () => page.close() };
}

async function times(page: Page): Promise<{ paint: number; state: number }> {
  // The paint is reported a little later than it happens.
  await page.waitForFunction("performance.getEntriesByName('first-contentful-paint').length > 0");
  const [paint, state] = (await page.evaluate(
    "['first-contentful-paint', 'shown'].map((name) => performance.getEntriesByName(name)[0]?.startTime)",
  )) as [number, number];
  return { paint, state };
}

async function limit(network: CDPSession, { latency, down, up }: Network): Promise<void> {
  const bytesPerSecond = (kbits: number) => (kbits * 1000) / 8;
  await network.send('Network.emulateNetworkConditions', {
    offline: false,
    latency,
    downloadThroughput: bytesPerSecond(down),
    uploadThroughput: bytesPerSecond(up),
  });
}

/** The bytes of each answer, by request; those of streams grow. */
function countBytes(network: CDPSession): ReadonlyMap<string, number> {
  const sizes = new Map<string, number>();
  const add = (id: string, bytes: number) => sizes.set(id, (sizes.get(id) ?? 0) + bytes);
  network.on('Network.requestWillBeSent', ({ requestId, request }) => {
    if (request.url.startsWith('http')) add(requestId, 0);
  });
  network.on('Network.responseReceived', ({ requestId, response }) => sizes.set(requestId, response.encodedDataLength));
  network.on('Network.dataReceived', ({ requestId, encodedDataLength }) => add(requestId, encodedDataLength));
  network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => sizes.set(requestId, encodedDataLength));
  return sizes;
}
