const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
export type SslMode = (typeof SSL_MODES)[number];
/** What a gateway can work with: it writes. */
const TARGETS = ['any', 'read-write', 'primary'] as const;
const FILES = { ca: 'sslrootcert', cert: 'sslcert', key: 'sslkey' } as const;

/** What a URL of PostgreSQL says, as libpq reads it. */
export interface PostgresPlace {
  /** One for each host, in order, without what the other members say. */
  readonly urls: readonly string[];
  /** Null: no TLS was asked for. */
  readonly sslMode: SslMode | null;
  /** Paths of PEM files. */
  readonly files: { readonly [Name in keyof typeof FILES]?: string };
}

const PARTS = /^(postgres(?:ql)?:\/\/)([^/?#]*)([^?#]*)(?:\?([^#]*))?$/;

/**
 * Parses `postgres://user:password@host:port,host:port/database?parameter=value`.
 *
 * @throws Error whose message has no part of it: passwords are in it
 */
export function parsePostgresUrl(text: string): PostgresPlace {
  const [, scheme, authority = '', path = '', query = ''] = PARTS.exec(text) ?? [];
  const at = authority.lastIndexOf('@') + 1;
  const [user, hosts] = [authority.slice(0, at), authority.slice(at).split(',')];
  if (scheme === undefined || (path + query).includes('@') || !isEncoded(user + path))
    throw new Error(
      'not such a URL; in user and password, write %25 for %, %40 for @, %2F for /, %3F for ? and %23 for #',
    );
  const parameters = new URLSearchParams(query);
  const take = (name: string): string | undefined => {
    const value = parameters.get(name) ?? undefined;
    parameters.delete(name);
    return value;
  };
  const sslMode = oneOf(SSL_MODES, 'sslmode', take('sslmode'));
  // A gateway needs a server that can be written to, whatever is asked for.
  oneOf(TARGETS, 'target_session_attrs', take('target_session_attrs'));
  const files = Object.fromEntries(
    Object.entries(FILES).flatMap(([name, parameter]) => {
      const file = take(parameter);
      return file === undefined ? [] : [[name, file]];
    }),
  );
  const rest = parameters.size > 0 ? `?${parameters}` : '';
  const urls = hosts.map((host) => scheme + user + host + path + rest);
  if (!urls.every((url) => URL.canParse(url))) throw new Error('not such a URL; its hosts or ports are wrong');
  if (sslMode === 'verify-ca' && files.ca === undefined) throw new Error('sslmode=verify-ca requires sslrootcert');
  return { urls, sslMode, files };
}

function isEncoded(text: string): boolean {
  return !/%(?![0-9A-Fa-f]{2})/.test(text) && canDecode(text);
}

function canDecode(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function oneOf<Value extends string>(values: readonly Value[], name: string, given: string | undefined): Value | null {
  if (given === undefined) return null;
  const found = values.find((value) => value === given);
  if (found === undefined) throw new Error(`${name} must be one of ${values.join(', ')}`);
  return found;
}
