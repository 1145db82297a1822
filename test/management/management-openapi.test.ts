import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { managementOpenApi } from '../../src/management/management-openapi.ts';
import { allOperations } from '../../src/management/operations.ts';
import { describedMembers, unusualTypes } from '../support/openapi-check.ts';

const document = managementOpenApi({ baseUrl: 'https://gateway.example.com', version: '1.0.0' }) as unknown as {
  paths: Record<
    string,
    Record<
      string,
      {
        operationId: string;
        requestBody?: { required: boolean; content: Record<string, { schema: object }> };
        responses: Record<string, { content?: Record<string, { schema: object }> }>;
      }
    >
  >;
  components: { schemas: Record<string, object> };
};

describe('the OpenAPI document', () => {
  it('describes every operation once, under its path and method', () => {
    const described = Object.values(document.paths).flatMap((path) =>
      Object.values(path).map((one) => one.operationId),
    );
    expect(described.sort()).toEqual(
      [
        ...allOperations().map(({ id }) => id),
        'enrolments.ca',
        'enrolments.create',
        'enrolments.leave',
        'enrolments.time',
      ].sort(),
    );
    for (const { id, operation } of allOperations()) {
      expect(document.paths[operation.path]?.[operation.method.toLowerCase()]?.operationId).toBe(id);
    }
  });

  it('contains schemas that a validator can compile', () => {
    const ajv = new Ajv2020();
    const answers = Object.values(document.paths).flatMap((path) => Object.values(path));
    const schemas = answers.flatMap(({ requestBody, responses }) => [
      ...Object.values(requestBody?.content ?? {}),
      ...Object.values(responses).flatMap((answer) => Object.values(answer.content ?? {})),
    ]);
    const promised = allOperations()
      .flatMap(({ operation }) => [operation.body, operation.answer])
      .filter(Boolean);
    // Request and response of an enrolment and of a time, the CA, and the request to leave.
    expect(schemas).toHaveLength(promised.length + 6);
    for (const { schema } of schemas) expect(() => ajv.compile(schema)).not.toThrow();
  });

  it('requires nullable members, except those that a domain never had', () => {
    const domain = document.paths['/reserved_domains/{id}']?.get?.responses['200']?.content?.['application/json']
      ?.schema as { required: string[]; properties: object };
    const optional = Object.keys(domain.properties).filter((name) => !domain.required.includes(name));
    expect(optional).toEqual(['description', 'metadata']);
  });

  it('requires a body only where an empty one is rejected', () => {
    const isNeeded = (path: string, method: string) => document.paths[path]?.[method]?.requestBody?.required;
    expect(isNeeded('/bot_users', 'post')).toBe(false);
    expect(isNeeded('/reserved_domains', 'post')).toBe(true);
    expect(isNeeded('/edges/tls/{id}/backend', 'put')).toBe(true);
  });

  it('lets optional members of requests be null, also inside modules, but no required one', () => {
    const schema = document.paths['/edges/tls']?.post?.requestBody?.content['application/json']?.schema ?? {};
    const accepts = new Ajv2020().compile(schema);
    expect(accepts({ description: null, hostports: null, tls_termination: { min_version: null } })).toBe(true);
    expect(accepts({ backend: { backend_id: null } })).toBe(false);
    expect(accepts({ unknown: null })).toBe(false);
  });

  it('has no types that generators of clients do not know', () => {
    expect(unusualTypes(document)).toEqual([]);
  });

  it('describes at least nine of ten members', () => {
    const { all, described } = describedMembers(document);
    expect(all).toBeGreaterThan(2_000);
    expect(described / all).toBeGreaterThanOrEqual(0.9);
  });

  it('is unchanged by JSON serialisation', () => {
    expect(JSON.parse(JSON.stringify(document))).toEqual(document);
  });
});
