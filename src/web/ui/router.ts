import { type ReadonlySignal, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

/** The parts of the fragment: `#/tunnels/cam/delete` is `['tunnels', 'cam', 'delete']`. */
export type PageRoute = readonly string[];

const current = signal<PageRoute>(read());
window.addEventListener('hashchange', () => {
  // A link that signs in leads nowhere else.
  if (!window.location.hash.startsWith('#code=')) current.value = read();
});

/** Where the page is. Paths belong to the API, so routes are in the fragment, which browsers keep to themselves. */
export const route: ReadonlySignal<PageRoute> = current;

/** The link to a route. */
export function linkTo(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join('/')}`;
}

/** Goes back to the page's main view, without a further entry in the history. */
export function goHome(): void {
  goTo();
}

/** Shows another view in place of the current one in the history. */
export function goTo(...parts: string[]): void {
  window.history.replaceState(null, '', parts.length === 0 ? window.location.pathname : linkTo(...parts));
  current.value = parts;
}

/** The query in the fragment: `#/tunnels/cam/traffic?status=5xx`. */
export function queryInAddress(): URLSearchParams {
  return new URLSearchParams(window.location.hash.split('?')[1] ?? '');
}

/** Puts a query behind the route, without a further entry in the history. */
export function keepInAddress(query: URLSearchParams): void {
  const [path = ''] = window.location.hash.split('?');
  const text = query.toString();
  window.history.replaceState(null, '', `${path || '#/'}${text && `?${text}`}`);
}

function read(): PageRoute {
  const [hash = ''] = window.location.hash.split('?');
  if (!hash.startsWith('#/')) return [];
  return hash
    .slice(2)
    .split('/')
    .filter((part) => part !== '')
    .map(decode);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Names what the page shows, for tabs, history and bookmarks.
 *
 * @param title null: another component names it
 */
export function useTitle(title: string | null): void {
  useEffect(() => {
    if (title !== null) document.title = title;
  }, [title]);
}
