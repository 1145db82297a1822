import { type CelMap, celMap } from '@bufbuild/cel';

/** The parts of a URL. A type alias, so that it is also assignable to a record of strings. */
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
 * Decodes a path as the upstream does. Invalid escapes or bytes must not keep the others from being decoded, or a
 * condition on the path could be bypassed.
 */
export function decodedPath(path: string): string {
  if (!path.includes('%')) return path;
  return path.replace(/(?:%[0-9a-f]{2})+/gi, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString());
}

export function pathOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? target : target.slice(0, mark);
}

export function queryOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? '' : target.slice(mark + 1);
}

/** The host of a Host header, without the port and the brackets of IPv6. */
export function hostWithoutPort(authority: string): string {
  return authority.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1');
}

/** The port of a Host header; undefined when it has none. */
export function portOf(authority: string): number | undefined {
  const port = /:(\d{1,5})$/.exec(authority)?.[1];
  return port === undefined ? undefined : Number(port);
}

export function queryParameters(query: string): CelMap {
  const values = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(query)) {
    const known = values.get(name);
    if (known) known.push(value);
    else values.set(name, [value]);
  }
  return celMap(values);
}
