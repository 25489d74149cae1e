#ifndef RADISH_PROMPT_GRAMMAR_GRAMMAR_INTERNAL_H
#define RADISH_PROMPT_GRAMMAR_GRAMMAR_INTERNAL_H

#include "prompt/grammar/grammar.h"

/* Shared by these files, and by tests that need small caches.
 *
 *   build.c    expressions
 *   class.c    sets of code points as byte ranges
 *   nfa.c      traits of expressions (empty, small, ...), and a rule as an NFA
 *   dfa.c      ... as a DFA
 *   compile.c  all rules together: left recursion, first and follow bytes, tables
 *   cost.c     ... and the shortest way to the end of each
 *   trie.c     the vocabulary
 *   match.c    the matcher: items, stacks, accept
 *   walk.c     one state's tokens: walks over the trie, and their cache
 *   mask.c     a configuration's tokens
 *   distinct.c lists whose items all differ: what the matcher remembers */

/* ---- expressions --------------------------------------------------------------------------- */

enum expr_kind {
    EXPR_NONE,
    EXPR_EMPTY,
    EXPR_NEVER,
    EXPR_LITERAL,  /* bytes[first ...], n of them */
    EXPR_CLASS,    /* words[first ...]: n ranges, sorted and disjoint, two words each */
    EXPR_TOKEN,    /* first: the id */
    EXPR_SEQUENCE, /* words[first ...]: n parts */
    EXPR_CHOICE,
    EXPR_REPEAT, /* first: the part */
    EXPR_RULE,   /* first: the body, GRAMMAR_NONE until it is defined; n: enum grammar_distinct */
};

struct expr {
    uint8_t kind;
    uint16_t depth; /* of nesting; a rule's body does not count */
    uint32_t first, n;
    uint32_t min, max;
};

enum {
    EXPR_DEPTH_MAX = 2000, /* compiling recurses this deep */
    EXPR_COUNT_MAX = 1 << 20,
    EXPR_WORDS_MAX = 1 << 23,
    EXPR_BYTES_MAX = 1 << 24,
};

struct grammar_builder {
    struct expr *exprs; /* [0] is GRAMMAR_NONE; parts come before the expressions that use them */
    size_t n_exprs, cap_exprs;
    uint32_t *words;
    size_t n_words, cap_words;
    char *bytes;
    size_t n_bytes, cap_bytes;
    struct error failure; /* code ERROR_NONE: none yet */
};

/* Makes room for `extra` more items of `size` bytes; false: out of memory. */
bool grammar_grow(void **items, size_t *capacity, size_t n, size_t extra, size_t size);

/* ---- sets of bytes ------------------------------------------------------------------------- */

/* A set of the 256 bytes, with one more member for all named tokens. */
struct byte_set {
    uint64_t bits[5];
};

enum { SYMBOL_TOKEN = 256, N_SYMBOLS = 257 };

static inline bool byte_set_has(const struct byte_set *s, uint32_t symbol)
{
    return s->bits[symbol / 64] >> (symbol % 64) & 1;
}

static inline void byte_set_add(struct byte_set *s, uint32_t symbol)
{
    s->bits[symbol / 64] |= (uint64_t)1 << (symbol % 64);
}

static inline bool byte_set_merge(struct byte_set *to, const struct byte_set *from)
{
    uint64_t changed = 0;
    for (int i = 0; i < 5; i++) {
        changed |= from->bits[i] & ~to->bits[i];
        to->bits[i] |= from->bits[i];
    }
    return changed != 0;
}

/* ---- compiled ------------------------------------------------------------------------------ */

/* A grammar is a set of automata over bytes, one for each rule, that call each other:
 *
 *   rule 0 (root)   1 ──'{'──► 2 ══string══► 3 ──':'──► 4 ══value══► 5 ...
 *   rule 1 (string) 1 ──'"'──► 2 ──'"'──► 3 (end)
 *                              └─► any other character: 2
 *
 * In each rule, state 0 is dead and state 1 is the start. Calls match at least one byte or token:
 * if a rule may match the empty text, the caller can bypass the call.
 *
 * A counted rule repeats something from `min` to `max` times. Its state 1 is the boundary between
 * two rounds, its only end; items in the rule carry the number of rounds so far. Rounds are either
 * only bytes, where no round is a prefix of another (so that a text has one number of rounds), or
 * one call of another rule.
 *
 * Tables are [state][class of the byte]: the next state (0: none), and STATE_LEAVES if that byte
 * could also come after the end of the rule or at the start of a rule that the state calls. */
enum {
    STATE_START = 1,
    STATE_MASK = 0x7fff,
    STATE_LEAVES = 0x8000,
    RULE_STATES_MAX = 0x7fff,
};

struct grammar_call {
    uint32_t rule;
    uint32_t back; /* the state afterwards; GRAMMAR_TAIL: the end of the caller */
};

#define GRAMMAR_TAIL UINT32_MAX

struct grammar_named {
    int32_t token;
    uint32_t target;
};

enum {
    STATE_FINAL = 1,     /* the rule may end here (in a counted rule: if the count allows it) */
    STATE_HAS_BYTES = 2, /* some byte leads further within the rule */
    STATE_GOES_ON = 4,   /* some byte, call or token leads further */
};

enum best_kind { BEST_NEVER, BEST_END, BEST_BYTE, BEST_CALL, BEST_TOKEN };

/* States are numbered through all rules: rule->first_state + the state within the rule. */
struct grammar_state {
    uint32_t rule;
    uint32_t calls, named; /* the first ones; they end at the next state's */
    uint16_t height;       /* stack depth that suffices for some way to the rule's end */
    uint8_t flags;
    uint8_t best;       /* how the shortest way to the end of the rule starts: */
    uint32_t best_with; /* with which byte, call or token */
};

struct grammar_rule {
    uint32_t first_state, n_states, n_classes;
    uint16_t *next; /* [n_states][n_classes] */
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* [n_classes]: the first byte of each class */
    bool is_counted;
    uint8_t part; /* enum grammar_distinct */
    bool is_wide; /* some state takes many different bytes, so its masks are worth keeping */
    uint32_t min, max;
    uint64_t hash; /* of the table */
    struct byte_set first, follow;
};

struct grammar {
    struct grammar_rule *rules; /* [0] is the root */
    uint32_t n_rules;
    struct grammar_state *states; /* [n_states + 1], for the ends of the lists */
    uint32_t n_states;
    struct grammar_call *calls;
    uint32_t n_calls;
    struct grammar_named *named;
    uint32_t n_named;
    uint32_t *by_distance; /* all states, nearest to their rule's end first */
    struct wind_up *wind;  /* [n_states] for the tokens of `measured_for`; NULL: not measured */
    const struct grammar_vocabulary *measured_for;
    uint32_t max_height;
    int32_t max_token; /* the largest named id, or -1 */
    bool has_distinct; /* some rule is part of a list of distinct items */
    size_t size_bytes;
    uint64_t id; /* unique in this process, never reused */
};

enum { GRAMMAR_DEPTH_MAX = 4096, GRAMMAR_HEIGHT_MAX = 1024 };

/* ---- compiling ----------------------------------------------------------------------------- */

enum {
    NFA_NODES_MAX = 1 << 19,
    DFA_SETS_MAX = 1 << 23,  /* members of all sets of one rule */
    DFA_TABLE_MAX = 1 << 23, /* entries of one rule's table */
    GRAMMAR_TABLES_MAX = 1 << 24,
    GRAMMAR_RULES_MAX = 1 << 16,
    EXPAND_MAX = 64,    /* a repeat of at most this many nodes is expanded */
    INLINE_SMALL = 12,  /* a rule of at most this many nodes is inlined, */
    INLINE_LARGE = 256, /* and one of at most this many without a loop */
    INLINE_DEPTH = 500,
    COMPILE_STEPS_MAX = 500000000, /* about two seconds of work; see compiler_step */
};

enum nfa_kind { NFA_BYTES, NFA_CALL, NFA_TOKEN, NFA_SPLIT, NFA_MATCH };

struct nfa_node {
    uint8_t kind;
    uint8_t lo, hi;  /* NFA_BYTES */
    uint32_t target; /* unused in NFA_MATCH */
    uint32_t arg;    /* NFA_CALL: the rule; NFA_TOKEN: the id; NFA_SPLIT: the other target */
};

/* The results of analysing an expression. */
struct expr_traits {
    bool is_reached;    /* from the root */
    bool is_productive; /* matches some text */
    bool is_nullable;   /* matches the empty text */
    bool has_text;      /* matches a non-empty text */
    bool is_known;      /* `size` and the next members are known */
    bool is_regular;    /* becomes only bytes: no call, no token */
    bool is_looping;
    bool is_inlined; /* of a rule */
    uint16_t depth;  /* of the recursion that builds it */
    uint32_t size;   /* NFA nodes, at most NFA_NODES_MAX */
    uint32_t rule;   /* the automaton of a rule or counted repeat, or UINT32_MAX: none yet */
    /* The list of rules with it as their body, which are visited right after it. */
    grammar_expr first_owner, next_owner;
};

/* A rule being compiled: its body, then its DFA with preliminary classes. */
struct rule_plan {
    grammar_expr body;
    bool is_counted;
    uint8_t part; /* enum grammar_distinct */
    uint32_t min, max;
    struct dfa *dfa;
};

struct compiler {
    struct grammar_builder *b;
    struct error *err;
    bool failed;
    uint64_t n_steps;           /* work so far */
    struct expr_traits *traits; /* [n_exprs] */
    struct rule_plan *plans;
    size_t n_plans, cap_plans;
    struct nfa_node *nodes; /* of the current rule */
    size_t n_nodes, cap_nodes;
    size_t table_entries;
};

struct dfa_state {
    uint32_t set, set_len;
    uint32_t calls, n_calls; /* into dfa.calls; `back` is a state of this DFA */
    uint32_t named, n_named;
    bool is_final;
};

struct dfa {
    struct dfa_state *states; /* [0] is dead, [1] the start */
    size_t n_states, cap_states;
    uint8_t class_of[256];
    uint32_t n_classes;
    uint16_t *next; /* [n_states][n_classes] */
    size_t cap_next;
    struct grammar_call *calls;
    size_t n_calls, cap_calls;
    struct grammar_named *named;
    size_t n_named, cap_named;
};

/* These fail the compiler; only the first error is kept. */
int compiler_fail(struct compiler *c, enum error_code code, const char *message);
/* Counts work, in visits of a node, an edge or a table entry; false if it is too much, or the
 * compiler has already failed. Time is not used, so that a busy machine compiles the same grammars
 * as an idle one. */
bool compiler_step(struct compiler *c, uint64_t n);
bool compiler_analyse(struct compiler *c, grammar_expr root);
uint32_t compiler_add_rule(struct compiler *c, const struct rule_plan *plan);
uint32_t nfa_add(struct compiler *c, enum nfa_kind kind, uint32_t target, uint32_t arg);
uint32_t nfa_add_bytes(struct compiler *c, uint8_t lo, uint8_t hi, uint32_t target);
uint32_t nfa_build_class(struct compiler *c, const uint32_t *ranges, uint32_t n, uint32_t next);
uint32_t nfa_class_size(const uint32_t *ranges, uint32_t n);
uint32_t nfa_build(struct compiler *c, grammar_expr e, uint32_t next);
struct dfa *dfa_build(struct compiler *c, uint32_t nfa_start, bool may_be_empty);
void dfa_free(struct dfa *d);
bool grammar_measure(struct grammar *g, struct compiler *c);

/* ---- vocabulary ---------------------------------------------------------------------------- */

/* The trie of all tokens' bytes, in preorder: a node's first child is the next node, and `skip` is
 * the node after its whole subtree. Node 0 is the root.
 *
 *   node   0    1    2     3     4                   tokens "a", "ab", "ad", "b"
 *   byte        a    b     d     b
 *   depth  0    1    2     2     1
 *   skip   5    4    3     4     5
 *   token  -    0    1     2     3                   same[token]: another token with the same bytes
 */
struct trie_node {
    uint32_t skip;
    uint32_t token; /* `none`: no token ends here */
    uint16_t depth;
    uint8_t byte;
};

struct token_trie {
    uint32_t n_nodes;
    struct trie_node *nodes;
    uint32_t *same; /* [n_tokens], or TOKEN_NONE */
    uint32_t none;  /* the first bit after a mask, so that a walk can set it without a check */
    struct token_pair {
        uint32_t token, same;
    } * pairs; /* all with the same bytes */
    uint32_t n_pairs;
};

#define TOKEN_NONE UINT32_MAX

/* A place in the trie where a token leaves its automaton: seen from `state`, the node's byte comes
 * after the end of the rule, or starts a called one. */
struct leave {
    uint32_t node;
    uint16_t state;  /* within the rule */
    uint16_t rounds; /* of a counted rule, since the start of the walk */
    uint8_t byte;    /* of the node */
};

/* What a state of a rule allows by itself, independent of the stack. `mask` has the tokens that
 * stay within the rule, `ends` the states that they lead to. In a counted rule the mask assumes
 * that every count is allowed, and `need` is the number of rounds that each token starts. Tokens
 * with NEED_MANY rounds or more have NEED_MANY, like those that are not allowed, and are listed in
 * `many`. */
struct base_mask {
    uint32_t automaton, state;
    uint64_t *mask;
    struct leave *leaves;
    uint32_t n_leaves;
    uint16_t *ends;
    uint32_t n_ends;
    uint8_t *need;
    uint32_t max_need;
    struct token_need {
        uint32_t token, need;
    } * many;
    uint32_t n_many;
};

enum { NEED_MANY = 127 };

struct automaton_copy {
    uint64_t hash;
    uint32_t n_states, n_classes;
    bool is_counted;
    uint8_t *class_of;
    uint16_t *next;
};

/* A bounded cache of base masks. Rules of different grammars with equal tables share them. It has
 * its own copies of the tables, because grammars come and go. When it is full, it is cleared. */
struct mask_store {
    char *pool;
    size_t pool_bytes, pool_used;
    uint32_t generation; /* changes when it is cleared */
    struct automaton_copy *automata;
    uint32_t n_automata;
    struct base_mask *masks;
    uint32_t n_masks;
    uint32_t *index; /* hash table of masks, by automaton and state; 0: free, else 1 + mask */
    uint32_t worth;  /* a walk over fewer nodes is not kept */
};

enum {
    STORE_AUTOMATA = 512,
    STORE_MASKS = 2048,
    STORE_INDEX = 4096,
    STORE_WORTH = 2048,
};

/* Whole masks that took long, for other answers with the same grammar. The key is the grammar, the
 * items and their whole stacks, compared word by word. */
enum { WHOLE_MASKS = 128, WHOLE_KEY = 96, WHOLE_WORTH = 1 << 13 };

struct whole_mask {
    uint32_t key[WHOLE_KEY];
    uint32_t key_len; /* 0: free */
    uint32_t reach;
    uint64_t used;
    uint64_t *mask;
};

struct whole_masks {
    struct whole_mask *items; /* [WHOLE_MASKS] */
    uint64_t *masks;
    uint64_t clock;
};

/* A leave being followed through the stacks. */
struct pending {
    uint32_t node, byte;
    uint32_t state, count, stack; /* the state's number is global */
};

/* Scratch memory for making a mask. All matchers share two. */
struct mask_scratch {
    uint16_t *states; /* [longest token + 2], by depth */
    uint32_t *counts;
    struct leave *leaves; /* [n_nodes] */
    uint8_t *need;        /* [64 * (n_words + 1)] */
    uint64_t *mask;       /* [n_words + 1] */
    struct token_need *many;
    uint16_t *ends;  /* [RULE_STATES_MAX + 1] */
    uint8_t *is_end; /* [RULE_STATES_MAX + 1], all zero between walks */
    struct pending *pending;
    uint32_t n_pending, max_pending;
    struct pending *seen; /* hash table */
    uint32_t *seen_stamp;
    uint32_t stamp_seen;
    uint32_t n_seen;
};

enum { SEEN_SIZE = 1 << 16, SEEN_AFTER = 1 << 12, PENDING_MIN = 1 << 16, WORK_MAX = 1 << 20 };

struct grammar_vocabulary {
    uint32_t n_tokens, n_words;
    uint32_t max_len;
    char *bytes;
    uint32_t *offsets;  /* [n_tokens + 1] */
    uint8_t *kinds;     /* TOKEN_IS_... */
    uint64_t *end_mask; /* [n_words] */
    struct token_trie trie;
    /* Only the matchers' thread uses the rest. A mask that pauses keeps its scratch: masks made in
     * the meantime use the other one. */
    struct mask_store store;
    struct whole_masks whole;
    struct mask_scratch scratch, spare;
    struct grammar_matcher *paused; /* it owns `spare`; NULL: nobody */
    uint32_t look_after;            /* nodes walked between two looks at the clock */
};

enum { TOKEN_IS_SPECIAL = 1, TOKEN_IS_END = 2 };

/* For tests: a vocabulary whose store of masks has this many bytes. */
int grammar_vocabulary_open_sized(struct grammar_vocabulary **out,
                                  const struct grammar_token_info *tokens, uint32_t n_tokens,
                                  size_t store_bytes, struct error *err);

/* ---- matcher ------------------------------------------------------------------------------- */

/* Where a matcher can be: in a state, with a count if its rule is counted, and with a stack of
 * states to go back to. */
struct item {
    uint32_t state, count, stack;
    uint32_t memory; /* of its list of distinct items; masks ignore it */
};

/* What is remembered about a list of distinct items: a chain, from the last to the first. All
 * places of the matcher share the text, so an item is a part of it. 0: not in a list.
 *
 *   text     [ "a" ,  "b" ,  "a
 *   memory 1 ◄─ 3 ◄─── 5 ◄── 6        1: the list, 3 and 5: complete items, 6: an open one */
struct remembered {
    uint8_t part;  /* DISTINCT_LIST: the start; DISTINCT_ITEM: open; DISTINCT_MORE: complete */
    uint32_t rule; /* of the item */
    uint32_t before;
    size_t start, len;
};

/* Stacks are linked towards the bottom and share their lower parts; equal frames are stored once.
 * Frame 0 is the bottom, and a frame's number is higher than those below it. */
struct frame {
    uint32_t state, count, below;
    uint32_t cost;  /* tokens that the shortest way to the end takes from here to the bottom */
    uint32_t slack; /* part of the cost */
    uint16_t depth;
    bool may_end; /* after popping it, the text may end */
    bool goes_on; /* ... and something can follow */
};

/* The shortest way from a state to the end of its rule: its number of tokens and the first one. For
 * the boundary of a counted rule: that of one round. */
struct wind_up {
    uint32_t cost;
    uint32_t token;
    uint32_t slack; /* part of the cost, only for distinct items */
};

enum {
    WIND_NEVER = 1 << 30,
    ITEMS_MAX = 128,
    CLOSURE_MAX = 1024,
    CLOSURE_INDEX = 2 * CLOSURE_MAX,
    CLOSURE_SHORT = 16,
    FRAMES_MAX = 4 * GRAMMAR_DEPTH_MAX,
    FRAMES_SPARE = GRAMMAR_DEPTH_MAX, /* reserved for accept; masks do not use them */
    FRAME_INDEX = 2 * FRAMES_MAX,
    CACHE_MASKS = 8,
    CACHE_ITEMS = 8,
};

/* The items of a step, and all that they become by ending rules and calling others, each once. The
 * first few are compared one by one, the others are in a hash table. */
struct closure {
    struct item items[CLOSURE_MAX];
    uint32_t n, stamp;
    struct {
        uint32_t stamp, at; /* with another stamp: free */
    } index[CLOSURE_INDEX];
};

struct cached_mask {
    struct item items[CACHE_ITEMS];
    uint32_t n_items; /* 0: free */
    uint32_t reach;   /* the longest of the shortest ways to the end after a token of the mask */
    uint64_t used;
    uint64_t *mask;
};

/* The output of a walk: sets tokens in `mask`; `reach` becomes the largest cost after one of
 * them. */
struct walk {
    uint64_t *mask;
    uint32_t reach;
    uint32_t limit; /* tokens with a higher cost afterwards are omitted */
    uint64_t n_walked;
};

/* A mask in the making, which may pause between two places of the trie:
 *
 *   NOTHING ─► ALL ─► UNIQUE ─► FEW ─► DONE ──accept──► NOTHING
 *
 * ALL is the mask without a limit on tokens, UNIQUE removes what repeats an item of a list, FEW is
 * the mask that winds up. While a walk is paused, the matcher's closure and its newest frames
 * belong to it, and so does a scratch of the vocabulary. */
enum making_stage { MAKING_NOTHING, MAKING_ALL, MAKING_UNIQUE, MAKING_FEW, MAKING_DONE };

struct making {
    enum making_stage stage;
    uint32_t n_left;
    uint64_t until_ns;  /* when to pause; UINT64_MAX: never */
    uint64_t looked_at; /* n_walked when the clock was last read */
    struct cached_mask *all;
    const uint64_t *mask; /* what is made so far */
    struct walk walk;
    uint32_t at;       /* the item of the closure that it walks from */
    bool is_entered;   /* the current item's own tokens are there, its leaves are followed */
    uint32_t n_frames; /* before the walk */
    uint32_t token;    /* FEW: the next one of the shortest way to the end, or TOKEN_NONE */
};

struct grammar_matcher {
    const struct grammar *g;
    struct grammar_vocabulary *v;
    const struct wind_up *wind; /* [n_states] the grammar's if that is measured, or */
    struct wind_up *own_wind;   /* the matcher's own */
    struct item *items;         /* its places */
    uint32_t n_items;
    struct item *next, *ahead;
    struct closure *closure;
    struct frame *frames;
    uint32_t n_frames;
    uint32_t *frame_index; /* 0: free, else the frame */
    uint32_t *frame_moved; /* [FRAMES_MAX], used to compact frames */
    struct cached_mask cache[CACHE_MASKS];
    uint64_t *masks;           /* of the cache */
    uint64_t *few;             /* a mask for winding up */
    const uint64_t *unhurried; /* the last mask without a limit on tokens; NULL: the same */
    uint64_t clock;
    struct making making;
    uint32_t *automata; /* [n_rules]: their numbers in the store, UINT32_MAX: none yet */
    uint32_t generation;
    struct distinct *distinct; /* NULL: the grammar has no list of distinct items */
};

struct distinct {
    struct remembered *memory; /* [0] is unused */
    size_t n_memory, cap_memory;
    char *text; /* since the start of the first open list */
    size_t n_text, cap_text;
    bool is_probing;      /* testing whether an item can be completed */
    uint64_t n_work;      /* counted since the last mask began */
    uint64_t work_max;    /* where the current search gives up */
    uint64_t search_left; /* work left for the searches of the current token */
    uint32_t *alike;      /* earlier items that start as the open one does */
    size_t cap_alike;
    struct item *next; /* used as the matcher's while probing */
    struct closure *closure;
    uint64_t *opening;  /* [n_words] tokens that can start a list and contain several items, */
    uint64_t *several;  /* ... that can end an item and continue after it, */
    uint64_t *suspects; /* ... to be tried */
    uint64_t *held;     /* a mask without the rejected tokens */
};

/* The most work of a mask, and of the searches of one token. See distinct.c. */
enum { DISTINCT_TRY_WORK = 1 << 16, DISTINCT_MASK_WORK = 4 * DISTINCT_TRY_WORK };

/* Extra tokens that an item may need beyond its shortest text, to differ from the others. */
enum { DISTINCT_SLACK = 2 };

static inline bool state_may_end(const struct grammar *g, uint32_t state, uint32_t count)
{
    const struct grammar_state *s = &g->states[state];
    const struct grammar_rule *r = &g->rules[s->rule];
    return (s->flags & STATE_FINAL) && (!r->is_counted || count >= r->min);
}

/* False at the boundary of a counted rule that has had all its rounds. */
static inline bool state_is_open(const struct grammar_rule *r, uint32_t local, uint32_t count)
{
    return !r->is_counted || local != STATE_START || count < r->max;
}

/* The count after a step to `local`: the boundary ends a round. Without a maximum, counts stop at
 * the minimum, because higher ones make no difference. */
static inline uint32_t count_after(const struct grammar_rule *r, uint32_t local, uint32_t count)
{
    if (!r->is_counted || local != STATE_START)
        return count;
    return r->max == GRAMMAR_NO_MAX && count >= r->min ? count : count + 1;
}

int distinct_open(struct grammar_matcher *m, struct error *err);
void distinct_close(struct distinct *d);
void distinct_forget(struct grammar_matcher *m);
/* Starts to try or accept a token: its searches are bounded from here. */
void distinct_begin_try(struct grammar_matcher *m);
/* Set the memory of `made`, which `it` becomes at the end of the text by ending its rule or by a
 * call. False: rejected. */
bool distinct_pop(struct grammar_matcher *m, const struct item *it, struct item *made);
bool distinct_call(struct grammar_matcher *m, const struct item *it, uint32_t rule,
                   struct item *made);
bool distinct_add_byte(struct grammar_matcher *m, uint8_t byte);
/* Keeps only the items that can still be completed; returns their number. */
uint32_t distinct_keep_live(struct grammar_matcher *m, struct item *items, uint32_t n);
bool distinct_is_open(const struct grammar_matcher *m, const struct item *it);
/* Makes the mask without tokens that repeat an item: begins, then goes on until it is done. False:
 * its time is over. */
void distinct_begin_mask(struct grammar_matcher *m, const uint64_t *mask);
bool distinct_make_mask(struct grammar_matcher *m);
/* The single-byte token in `mask` that leads nearest to an end; TOKEN_NONE: none. */
uint32_t distinct_way(struct grammar_matcher *m, const uint64_t *mask);
/* True if the item is open and some earlier one starts with its text. */
bool distinct_is_alike(const struct grammar_matcher *m, const struct item *it);
/* Tests whether the matcher accepts the bytes, and how far the end is then; changes nothing. Fewer
 * tokens are nearer; in a tie, an item unlike any earlier one, then any item. */
bool matcher_tries(struct grammar_matcher *m, const char *bytes, size_t len, uint64_t *distance);
/* Puts everything that `items` become with the byte into m->next; returns their number. */
uint32_t matcher_step(struct grammar_matcher *m, const struct item *items, uint32_t n_items,
                      uint8_t byte);

/* True once the mask being made has to pause. It reads the clock. */
bool making_is_late(const struct grammar_matcher *m);

uint32_t wind_cost(const struct grammar_matcher *m, uint32_t state, uint32_t count);
uint32_t wind_slack(const struct grammar_matcher *m, uint32_t state, uint32_t count);
void matcher_measure(struct grammar_matcher *m); /* fills in `own_wind` */
/* The frame, or UINT32_MAX if none is left below `limit`. `slack` tokens are added to the cost
 * below it; it depends only on the other arguments. */
uint32_t frame_push(struct grammar_matcher *m, uint32_t state, uint32_t count, uint32_t below,
                    uint32_t limit, uint32_t slack);
/* Forgets the newest frames, down to `n`. */
void frame_truncate(struct grammar_matcher *m, uint32_t n);
/* The result of popping, and of call `call`. False: rejected. */
bool item_pop(const struct grammar_matcher *m, const struct item *it, struct item *out);
bool item_call(struct grammar_matcher *m, const struct item *it, const struct grammar_call *call,
               uint32_t frame_limit, struct item *out);
bool item_fits(const struct grammar_matcher *m, uint32_t state, uint32_t stack);
/* Puts everything that the items can become without a byte into m->closure. */
void matcher_close_items(struct grammar_matcher *m, uint32_t frame_limit);

/* Adds what `it` allows independent of its stack, and appends its leaves to the scratch. */
void walk_item(struct grammar_matcher *m, const struct item *it, struct walk *w);
/* Walks the subtree of `node`, starting with its byte. */
void walk_subtree(struct grammar_matcher *m, const struct item *it, uint32_t node, struct walk *w);
void walk_append(struct grammar_matcher *m, const struct pending *p);

#endif
