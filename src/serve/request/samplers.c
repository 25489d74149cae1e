/* Reads `samplers`, llama-server's order of samplers. radish has one order, in which only the
 * temperature has two places (sched/sampler.h). A list must follow that order; otherwise the error
 * names the first sampler that does not. Samplers that are not in the list are off. Pure; runs on
 * the workers. */
#include <string.h>

#include "serve/request/request_internal.h"

/* In the order in which they are applied. */
enum sampler_name {
    SAMPLER_PENALTIES,
    SAMPLER_DRY,
    SAMPLER_TOP_N_SIGMA,
    SAMPLER_TOP_K,
    SAMPLER_TYPICAL_P, /* this and later filters see the temperature */
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_XTC,
    SAMPLER_TEMPERATURE,
    SAMPLER_INFILL, /* after all filters, and only if listed */
    SAMPLER_NAMES
};

static const struct {
    const char *names[3];
    char letter;
} samplers[SAMPLER_NAMES] = {
    [SAMPLER_PENALTIES] = {{"penalties"}, 'e'},
    [SAMPLER_DRY] = {{"dry"}, 'd'},
    [SAMPLER_TOP_N_SIGMA] = {{"top_n_sigma", "top-n-sigma"}, 's'},
    [SAMPLER_TOP_K] = {{"top_k", "top-k"}, 'k'},
    [SAMPLER_TYPICAL_P] = {{"typ_p", "typical_p", "typical-p"}, 'y'},
    [SAMPLER_TOP_P] = {{"top_p", "top-p"}, 'p'},
    [SAMPLER_MIN_P] = {{"min_p", "min-p"}, 'm'},
    [SAMPLER_XTC] = {{"xtc"}, 'x'},
    [SAMPLER_TEMPERATURE] = {{"temperature", "temp"}, 't'},
    [SAMPLER_INFILL] = {{"infill"}, 'i'},
};

static int sampler_find(const struct json *name)
{
    for (int i = 0; i < SAMPLER_NAMES; i++)
        for (int k = 0; k < 3 && samplers[i].names[k]; k++)
            if (json_equals(name, samplers[i].names[k]))
                return i;
    return -1;
}

static int sampler_find_letter(char letter)
{
    for (int i = 0; i < SAMPLER_NAMES; i++)
        if (samplers[i].letter == letter)
            return i;
    return -1;
}

static bool has(uint32_t set, enum sampler_name name)
{
    return set >> name & 1;
}

/* Adds a sampler to the list; -1 if it may not follow the earlier ones. */
static int sampler_add(struct field_reader *r, int name, const char *path)
{
    struct request_params *p = r->params;
    const char *spelling = samplers[name].names[0];
    const uint32_t set = p->samplers, ordered = set & ((1u << SAMPLER_TEMPERATURE) - 1);
    if (has(set, (enum sampler_name)name))
        return api_error_set(r->err, 400, path, "'%s' lists \"%s\" twice", path, spelling);
    p->samplers |= 1u << name;
    if (name == SAMPLER_INFILL) {
        p->sampling.infill = true;
        return 0;
    }
    if (name == SAMPLER_TEMPERATURE) {
        p->sampling.temperature_last = ordered >> SAMPLER_TYPICAL_P != 0;
        return 0;
    }
    bool is_cut_by_share = name >= SAMPLER_TYPICAL_P, is_edit = name <= SAMPLER_DRY;
    if (!has(set, SAMPLER_INFILL) && ordered >> name == 0 &&
        !(has(set, SAMPLER_TEMPERATURE) &&
          (is_edit || (is_cut_by_share && p->sampling.temperature_last))))
        return 0;
    return api_error_set(
        r->err, 400, path,
        "'%s' lists \"%s\" too late: the order must be penalties, dry, top_n_sigma, "
        "top_k, typ_p, top_p, min_p, xtc, infill, with temperature before typ_p or last",
        path, spelling);
}

int read_samplers(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type != JSON_STRING && value->type != JSON_ARRAY)
        return wrong_type(r, path, "an array of names or a string of letters", value);
    for (size_t i = 0; value->type == JSON_STRING && i < value->text_len; i++) {
        int name = sampler_find_letter(value->text[i]);
        if (name < 0)
            return api_error_set(
                r->err, 400, path,
                "'%s' has the letter \"%.1s\"; samplers are the letters edskypmxti", path,
                (unsigned char)value->text[i] < 0x80 ? value->text + i : "?");
        if (sampler_add(r, name, path))
            return -1;
    }
    json_each (item, value) {
        if (item->type != JSON_STRING)
            return api_error_set(r->err, 400, path,
                                 "'%s' has an element of type %s: each must be a sampler's name",
                                 path, json_type_name(item->type));
        int name = sampler_find(item);
        if (name < 0)
            return api_error_set(r->err, 400, path, "'%s' has an unknown sampler, \"%.40s\"", path,
                                 item->text);
        if (sampler_add(r, name, path))
            return -1;
    }
    return 0;
}

void samplers_finish(struct request_params *p)
{
    struct sampling *o = &p->sampling;
    if (!p->samplers)
        return;
    if (!has(p->samplers, SAMPLER_PENALTIES)) {
        o->presence_penalty = o->frequency_penalty = 0;
        o->repetition_penalty = 1;
    }
    if (!has(p->samplers, SAMPLER_DRY))
        o->dry_multiplier = 0;
    if (!has(p->samplers, SAMPLER_TOP_N_SIGMA))
        o->top_n_sigma = 0;
    if (!has(p->samplers, SAMPLER_TOP_K))
        o->top_k = 0;
    if (!has(p->samplers, SAMPLER_TYPICAL_P))
        o->typical_p = 1;
    if (!has(p->samplers, SAMPLER_TOP_P))
        o->top_p = 1;
    if (!has(p->samplers, SAMPLER_MIN_P))
        o->min_p = 0;
    if (!has(p->samplers, SAMPLER_XTC))
        o->xtc_probability = 0;
    if (!has(p->samplers, SAMPLER_TEMPERATURE))
        o->temperature = 1;
}

void samplers_write(struct json_writer *w, const char *key, const struct request_params *p)
{
    static const enum sampler_name usual[] = {
        SAMPLER_PENALTIES, SAMPLER_DRY,   SAMPLER_TEMPERATURE, SAMPLER_TOP_N_SIGMA, SAMPLER_TOP_K,
        SAMPLER_TYPICAL_P, SAMPLER_TOP_P, SAMPLER_MIN_P,       SAMPLER_XTC};
    bool last = p->samplers && p->sampling.temperature_last;
    json_array_begin(w, key);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if ((!p->samplers || has(p->samplers, usual[i])) &&
            !(last && usual[i] == SAMPLER_TEMPERATURE))
            json_add_string(w, NULL, samplers[usual[i]].names[0]);
    if (has(p->samplers, SAMPLER_INFILL))
        json_add_string(w, NULL, samplers[SAMPLER_INFILL].names[0]);
    if (last)
        json_add_string(w, NULL, samplers[SAMPLER_TEMPERATURE].names[0]);
    json_array_end(w);
}
