import { useEffect } from 'preact/hooks';

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
