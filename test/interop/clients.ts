import type { Client } from './client.ts';
import { terraform } from './terraform.ts';

/** All clients that can be tried, by the name on the command line. */
export const CLIENTS: Record<string, Client[]> = { terraform: [terraform] };
