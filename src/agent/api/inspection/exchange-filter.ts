/** Which requests to show; what is omitted does not matter. */
export interface ExchangeFilter {
  method?: string | undefined;
  /** Contained in path and query, as sent or as {@link readablePath} shows them, in any case. */
  path?: string | undefined;
  /** `404`, `5xx`, or `none` without a response. */
  status?: string | undefined;
  min_duration_ms?: number | undefined;
}

export interface Filtered {
  method: string;
  path: string;
  status: number | null;
  durationMs: number;
}

/** What {@link ExchangeFilter.status} may be. */
export const STATUS_FILTER = /^(?:[1-5](?:xx|\d\d)|none)$/i;

export function matcherOf({ method, path, status, min_duration_ms = 0 }: ExchangeFilter): (each: Filtered) => boolean {
  const part = path?.toLowerCase();
  const wantedMethod = method?.toUpperCase();
  const digits = status?.toLowerCase().replace(/x+$/, '');
  return (each) => {
    if (wantedMethod !== undefined && each.method.toUpperCase() !== wantedMethod) return false;
    if (part !== undefined && !contains(each.path, part) && !contains(readablePath(each.path), part)) return false;
    if (digits === 'none' ? each.status !== null : digits !== undefined && !String(each.status).startsWith(digits)) {
      return false;
    }
    return each.durationMs >= min_duration_ms;
  };
}

const contains = (text: string, part: string): boolean => text.toLowerCase().includes(part);

/** What would not show what was sent: controls, invisible characters, and separators other than a space. */
const UNREADABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/** A path with its percent-encoded letters shown, except where that would change how the path is read. */
export function readablePath(path: string): string {
  return path.replace(/(?:%(?!25)[0-9a-f]{2})+/gi, (encoded) => {
    try {
      const text = decodeURI(encoded);
      return UNREADABLE.test(text) ? encoded : text;
    } catch {
      return encoded;
    }
  });
}
