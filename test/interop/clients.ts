import type { Client } from './client.ts';
import { openapi } from './generators.ts';
import { go } from './go.ts';
import { goApi, operator } from './go-api.ts';
import { dex, keycloak } from './identity-providers.ts';
import { python } from './python.ts';
import { pythonApi } from './python-api.ts';
import { rust } from './rust.ts';
import { schemathesis } from './schemathesis.ts';
import { terraform } from './terraform.ts';

/** All clients that can be tried, by the name on the command line. */
export const CLIENTS: Record<string, Client[]> = {
  go,
  rust: [rust],
  python: [python],
  api: [pythonApi, goApi],
  operator: [operator],
  terraform: [terraform],
  openapi,
  schemathesis: [schemathesis],
  keycloak: [keycloak],
  dex: [dex],
};
