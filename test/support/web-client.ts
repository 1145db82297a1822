import type { PublicRequest } from '../../src/traffic-policy/fetch-document.ts';
import { exchange } from './https-exchange.ts';

interface Cookie {
  name: string;
  value: string;
  domain: string;
  path: string;
  isHostOnly: boolean;
}

export interface Page {
  url: string;
  status: number;
  headers: Readonly<Record<string, string | string[] | undefined>>;
  body: string;
}

/** A browser without pages: it keeps cookies and follows redirects. */
export class WebClient {
  cookies: Cookie[] = [];

  /** @param ask sends a request; omitted: to servers of this machine */
  constructor(
    private readonly ask: (
      url: string,
      request: PublicRequest,
    ) => Promise<Omit<Page, 'url' | 'body'> & { body: Buffer }> = exchange,
  ) {}

  /** Sends one request, without following a redirect. */
  async visit(url: string, { headers = {}, ...request }: PublicRequest = {}): Promise<Page> {
    const { hostname, pathname } = new URL(url);
    const cookie = this.cookies
      .filter(({ domain, isHostOnly }) => hostname === domain || (!isHostOnly && hostname.endsWith(`.${domain}`)))
      .filter(({ path }) => pathname.startsWith(path))
      .map(({ name, value }) => `${name}=${value}`)
      .join('; ');
    const response = await this.ask(url, { ...request, headers: { ...headers, ...(cookie !== '' && { cookie }) } });
    for (const line of [response.headers['set-cookie'] ?? []].flat()) this.#keep(line, hostname);
    return { url, status: response.status, headers: response.headers, body: response.body.toString() };
  }

  /** Follows redirects, at most as far as a URL that contains `until`. */
  async follow(page: Page, until?: string): Promise<Page> {
    let current = page;
    while (current.status >= 300 && current.status < 400) {
      const next = new URL(String(current.headers.location), current.url).href;
      if (until !== undefined && next.includes(until)) return { ...current, url: next };
      current = await this.visit(next);
    }
    return current;
  }

  #keep(line: string, host: string): void {
    const [pair = '', ...attributes] = line.split('; ');
    const [name = '', value = ''] = pair.split(/=(.*)/s);
    const attribute = (wanted: string) =>
      attributes.find((each) => each.toLowerCase().startsWith(`${wanted}=`))?.slice(wanted.length + 1);
    const domain = attribute('domain') ?? host;
    const path = attribute('path') ?? '/';
    this.cookies = this.cookies.filter(
      (known) => known.name !== name || known.domain !== domain || known.path !== path,
    );
    if (attribute('max-age') === '0' || value === '') return;
    this.cookies.push({ name, value, domain, path, isHostOnly: attribute('domain') === undefined });
  }
}
