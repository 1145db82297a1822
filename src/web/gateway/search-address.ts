import { keepInAddress, linkTo, queryInAddress } from '../ui/router.ts';
import type { SectionName } from './section.ts';

/** The link to what a search finds in a list. */
export function searchLink(section: SectionName, text: string): string {
  return linkTo(section) + (text === '' ? '' : `?${new URLSearchParams({ search: text })}`);
}

/** The search in the address. */
export function searchInAddress(): string {
  return queryInAddress().get('search') ?? '';
}

/** Puts a search into the address, so that it is there again after a reload. */
export function keepSearch(text: string): void {
  keepInAddress(new URLSearchParams(text === '' ? {} : { search: text }));
}
