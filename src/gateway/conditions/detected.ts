import type { ReportedCondition } from '../endpoints/live-view.ts';
import type { Store } from '../store/store.ts';

/** What a probe has found. */
export interface Detected extends Pick<ReportedCondition, 'message' | 'subjects'> {
  /** Left out: what the list of conditions says. */
  readonly remedy?: string;
}

/** Names in a message; it counts the others. */
const MAX_NAMES = 3;

export function listed(names: readonly string[]): string {
  const more = names.length - MAX_NAMES;
  const shown = names.slice(0, MAX_NAMES).join(', ');
  return more > 0 ? `${shown} and ${more} more` : shown;
}

/** The site that a name belongs to; null: none. */
export function siteOf(name: string, siteNames: Pick<Store['siteNames'], 'isSite'>): string | null {
  for (let at = name.indexOf('.'); at >= 0; at = name.indexOf('.', at + 1)) {
    const domain = name.slice(at + 1);
    if (siteNames.isSite(domain)) return domain;
  }
  return null;
}
