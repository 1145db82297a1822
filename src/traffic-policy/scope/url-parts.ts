/** A URL's parts as texts: type alias rather than interface, so that it is a record of texts as well. */
export type UrlParts = {
  scheme: string;
  authority: string;
  host: string;
  port: string;
  path: string;
  raw_path: string;
  query: string;
  uri: string;
  raw: string;
  user_password: string;
  fragment: string;
};

/**
 * @param text an absolute URL
 * @returns null when it is none
 */
export function parseUrl(text: string): UrlParts | null {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text) || !URL.canParse(text)) return null;
  const url = new URL(text);
  const { pathname, search } = url;
  return {
    scheme: url.protocol.slice(0, -1),
    authority: url.host,
    host: url.hostname,
    port: url.port,
    path: decodedPath(pathname),
    raw_path: pathname,
    query: search.slice(1),
    uri: pathname + search,
    raw: text,
    user_password: url.password === '' ? url.username : `${url.username}:${url.password}`,
    fragment: url.hash.slice(1),
  };
}

/**
 * A path as whoever serves it reads it. Each escape for itself: one that is none, or bytes that are no UTF-8, must not
 * leave the others as they are, or a condition on the path would not see what is behind them.
 */
export function decodedPath(path: string): string {
  if (!path.includes('%')) return path;
  return path.replace(/(?:%[0-9a-f]{2})+/gi, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString());
}

/** A request target's path, without the query. */
export function pathOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? target : target.slice(0, mark);
}

/** A request target's query, without the question mark. */
export function queryOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? '' : target.slice(mark + 1);
}

/** A Host header's name, without port and without the brackets of IPv6. */
export function hostOf(authority: string): string {
  return authority.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1');
}

/** A Host header's port; undefined when it names none. */
export function portOf(authority: string): number | undefined {
  const port = /:(\d{1,5})$/.exec(authority)?.[1];
  return port === undefined ? undefined : Number(port);
}
